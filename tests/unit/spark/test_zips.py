"""Zips whose directories are read again only if the file has changed."""

import importlib
import os
import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path
from zipimport import zipimporter

import pytest

from kafscale_spark.zips import KeptZip, keep_directories
from tests.support.spark.session import environment


@pytest.fixture(autouse=True)
def _importers() -> Iterator[None]:
    """Restore the importers of this process after each test."""
    path, hooks = list(sys.path), list(sys.path_hooks)
    cache, modules = dict(sys.path_importer_cache), set(sys.modules)
    yield
    sys.path[:], sys.path_hooks[:] = path, hooks
    sys.path_importer_cache.clear()
    sys.path_importer_cache.update(cache)
    for name in sys.modules.keys() - modules:
        del sys.modules[name]


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of zips whose directories are read."""
    read: list[str] = []
    original = zipimport._read_directory  # type: ignore[attr-defined]

    def noted(archive: str) -> object:
        read.append(archive)
        return original(archive)

    monkeypatch.setattr(zipimport, "_read_directory", noted)
    return read


def _write(path: Path, **modules: str) -> Path:
    """Write a zip of these modules; the part before a double underscore is the directory."""
    with zipfile.ZipFile(path.with_suffix(".new"), "w") as archive:
        for name, text in modules.items():
            archive.writestr(f"{name.replace('__', '/', 1)}.py", text)
    os.replace(path.with_suffix(".new"), path)
    return path


def test_an_unchanged_zip_is_not_read_again(tmp_path: Path, readings: list[str]) -> None:
    path = _write(tmp_path / "some.zip", kept_one="", kept_two____init__="", kept_two__part="")
    sys.path.append(str(path))
    importlib.import_module("kept_one")
    keep_directories()
    importlib.invalidate_caches()
    importlib.import_module("kept_two.part")
    importlib.invalidate_caches()
    readings.clear()
    importlib.invalidate_caches()
    assert type(sys.path_importer_cache[str(path)]) is KeptZip
    assert type(sys.path_importer_cache[f"{path}/kept_two"]) is KeptZip
    assert readings.count(str(path)) == 0


@pytest.mark.parametrize("kept_before", [True, False])
def test_a_module_added_to_a_zip_is_found(tmp_path: Path, kept_before: bool) -> None:
    """Includes files that Python has not looked up since."""
    path = _write(tmp_path / "some.zip", kept_three="")
    sys.path.append(str(path))
    importlib.import_module("kept_three")
    if kept_before:
        keep_directories()
        importlib.invalidate_caches()
    _write(path, kept_three="", kept_four="VALUE = 4")
    keep_directories()
    importlib.invalidate_caches()
    assert importlib.import_module("kept_four").VALUE == 4


def test_a_deleted_zip_is_left_to_python(tmp_path: Path) -> None:
    path = _write(tmp_path / "some.zip", kept_seven="")
    sys.path.append(str(path))
    importlib.import_module("kept_seven")
    path.unlink()
    keep_directories()
    assert type(sys.path_importer_cache[str(path)]) is zipimporter
    importlib.invalidate_caches()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="this Python does so itself")
def test_only_spark_workers_cache_zip_directories() -> None:
    env = os.environ | environment()
    for module, kept in (("pyspark.worker_util", "True"), ("pyspark.sql", "False")):
        code = f"import sys, {module}, kafscale_spark; print(kafscale_spark.zips.KeptZip in sys.path_hooks)"
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == kept
