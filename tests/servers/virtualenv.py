"""Virtual environments and wheels, in the cache, of packages that the tests' own environment cannot have."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.servers.java import cache_root

_PIP = ("-m", "pip", "--disable-pip-version-check")


def installed_python(name: str, lock_file: Path, what: str) -> Path:
    """Return the interpreter of the environment ``name`` with the packages of ``lock_file``. Create it if needed.

    ``what`` names the packages in messages.
    """

    def install(directory: Path) -> None:
        shutil.rmtree(directory / "venv", ignore_errors=True)
        _run("make a virtual environment", sys.executable, "-m", "venv", str(directory / "venv"))
        pip = (str(directory / "venv" / "bin" / "python"), *_PIP, "install", "--quiet", "--require-hashes")
        _run(f"install {what}", *pip, "-r", str(lock_file))

    return _cached(name, lock_file, what, install) / "venv" / "bin" / "python"


def kept_wheels(name: str, lock_file: Path, what: str) -> Path:
    """Return a directory with a wheel of each package of ``lock_file``, from which pip can install offline."""

    def download(directory: Path) -> None:
        shutil.rmtree(directory / "wheels", ignore_errors=True)
        pip = (sys.executable, *_PIP, "wheel", "--quiet", "--no-deps", "--require-hashes")
        _run(f"download {what}", *pip, "--wheel-dir", str(directory / "wheels"), "-r", str(lock_file))

    return _cached(name, lock_file, what, download) / "wheels"


def _cached(name: str, lock_file: Path, what: str, install: Callable[[Path], None]) -> Path:
    """Return the directory of ``name`` in the cache. ``install`` fills it once for each ``lock_file``."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(lock_file.read_bytes() + version.encode()).hexdigest()[:16]
    built = cache_root() / f"{name}-{digest}"
    built.mkdir(parents=True, exist_ok=True)
    with (built / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built / "installed").exists():
            print(f"installing {what} into {built} (a minute) ...", flush=True)
            install(built)
            (built / "installed").touch()
    return built


def _run(what: str, *command: str) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise SystemExit(f"could not {what}: see the messages above")
