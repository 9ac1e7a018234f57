"""Compiled functions work wherever the package is, and whatever the state of the cache is."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import kafscale_spark

PACKAGE = Path(kafscale_spark.__file__).parent
ROOT = PACKAGE.parent.parent
PROGRAM = """
from kafscale_spark import machine
print(machine.__file__)
print(machine.read_number(machine.frozen(b"\\1\\2\\3"), 1, 2))
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return the package as a zip for `spark-submit --py-files`."""
    path = tmp_path / "kafscale_spark.zip"
    with zipfile.ZipFile(path, "w") as made:
        for source in PACKAGE.glob("*.py"):
            made.write(source, f"{PACKAGE.name}/{source.name}")
    return path


def _run(package: Path, **environment: str) -> None:
    paths = {"PYTHONPATH": f"{package}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | paths | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    where, answer = done.stdout.split()
    assert where.startswith(str(package))
    assert int(answer) == 0x0203


def test_each_process_compiles_if_nothing_can_be_written(archive: Path) -> None:
    _run(archive, HOME="/dev/null", XDG_CACHE_HOME="/dev/null/cache")


def test_compiled_code_is_shared_by_copies_and_may_be_damaged_or_unreadable(archive: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    _run(archive, NUMBA_CACHE_DIR=str(cache))
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert {path.suffix for path in kept} == {".nbi", ".nbc"}
    _run(PACKAGE.parent, NUMBA_CACHE_DIR=str(cache))
    assert [path for path in cache.rglob("*") if path.is_file()] == kept
    for path in kept:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    _run(archive, NUMBA_CACHE_DIR=str(cache))
    for path in kept:
        path.unlink()
        path.mkdir()
    _run(archive, NUMBA_CACHE_DIR=str(cache))
