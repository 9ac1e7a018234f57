"""Virtual environments of packages that the tests' own cannot have, kept in the cache directory."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.java.build import cache_root


def installed_python(name: str, lock_file: Path, what: str) -> Path:
    """The interpreter of the environment ``name`` with all of ``lock_file``, installed first when the cache lacks it.

    ``what``: the packages, for messages.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(lock_file.read_bytes() + version.encode()).hexdigest()[:16]
    built = cache_root() / f"{name}-{digest}"
    python = built / "venv" / "bin" / "python"
    built.mkdir(parents=True, exist_ok=True)
    with (built / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built / "installed").exists():
            print(f"installing {what} into {built} (a minute) ...", flush=True)
            shutil.rmtree(built / "venv", ignore_errors=True)
            _run("make a virtual environment", sys.executable, "-m", "venv", str(built / "venv"))
            pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--require-hashes")
            _run(f"install {what}", *pip, "-r", str(lock_file))
            (built / "installed").touch()
    return python


def _run(what: str, *command: str) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise SystemExit(f"could not {what}: the messages stand above")
