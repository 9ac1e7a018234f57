"""The code for executors: the zip for ``--py-files``, and the wheel of the project."""

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kafscale_spark.package import main, write_package
from tests.support.spark.shipping import ROOT, built_wheel

# Imports every module of the package, decodes a batch, and prints modules that are not from the argument's path.
PROBE = """
import importlib, pkgutil, sys
import kafscale_spark
names = [module.name for module in pkgutil.iter_modules(kafscale_spark.__path__)]
for name in names:
    importlib.import_module(f"kafscale_spark.{name}")
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from kafscale_spark.decode import Decoder
from kafscale_spark.pieces import Partition, Piece
batch = build_batch([Record(0, 1000, b"key", b"value", ())], base_offset=0, codec=Codec.SNAPPY)
decoder = Decoder(Partition("topic", 0), ["value"])
rows = [*decoder.feed(Piece(batch, "object", 0)), *decoder.finish()]
own = [module for name, module in sys.modules.items() if name.split(".")[0] in ("kafscale", "kafscale_spark")]
elsewhere = [module.__name__ for module in own if not module.__file__.startswith(sys.argv[1])]
services = [name for name in ("trio", "kio", "minio", "httpcore", "structlog") if name in sys.modules]
print((len(names), rows[0].to_pylist(), elsewhere, services))
"""

# The manifests of k8s/ from which the operator creates clusters.
MADE_OF = ("base", "components/node-ports", "components/load-balancers")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "kafscale.zip"
    assert main([str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


def _probed(directory: Path, path: Path, **env: str) -> tuple[object, ...]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(path)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(path), **env},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    answer: tuple[object, ...] = ast.literal_eval(done.stdout)
    return answer


def _expected() -> tuple[object, ...]:
    package = ROOT / "spark" / "kafscale_spark"
    modules = {*package.glob("*.py"), *(path.parent for path in package.glob("*/__init__.py"))}
    return len(modules) - 1, [{"value": b"value"}], [], []


def test_the_zip_holds_everything_the_package_imports(package: Path, tmp_path: Path) -> None:
    assert _probed(tmp_path, package, NUMBA_CACHE_DIR="", HOME=str(tmp_path)) == _expected()


def test_an_executor_without_a_cache_directory_compiles_in_memory(package: Path, tmp_path: Path) -> None:
    # Like a YARN container of the user nobody: no home directory, and the package in a zip.
    assert _probed(tmp_path, package, HOME="/proc/none") == _expected()


def test_the_same_tree_gives_the_same_zip(package: Path, tmp_path: Path) -> None:
    write_package(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == package.read_bytes()


def test_the_name_of_the_zip_is_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["kafscale.tar"]) == 2
    assert "FILE.zip" in capsys.readouterr().err


def test_the_wheel_holds_the_services_and_the_spark_package(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        modules = {name for name in archive.namelist() if name.endswith(".py")}
        manifests = {name for name in archive.namelist() if name.startswith("services/operator/manifests/")}
        pages = {name for name in archive.namelist() if name.startswith("services/console/static/")}
        archive.extractall(tmp_path / "installed")
    in_tree = {
        path.relative_to(root).as_posix()
        for root, package in (
            (ROOT, "kafscale"),
            (ROOT, "kafscale_tools"),
            (ROOT, "services"),
            (ROOT / "spark", "kafscale_spark"),
            (ROOT / "spark", "pyspark_kafscale"),
        )
        for path in (root / package).rglob("*.py")
        # They need the repository.
        if path.parent not in (ROOT / "kafscale_tools" / "documents", ROOT / "kafscale_tools" / "release")
    }
    assert modules == in_tree
    made_of = (path for part in MADE_OF for path in (ROOT / "k8s" / part).rglob("*") if path.is_file())
    static = ROOT / "services" / "console" / "static"
    assert pages == {path.relative_to(ROOT).as_posix() for path in static.rglob("*") if path.is_file()}
    assert manifests == {f"services/operator/manifests/{path.relative_to(ROOT / 'k8s').as_posix()}" for path in made_of}
    assert _probed(tmp_path, tmp_path / "installed") == _expected()
