"""Python frameworks in a virtual environment of their own, made once, in the cache.

``python -m tests.ecosystem.python_env`` makes it of ``python/requirements.lock``: what they need of aiokafka,
confluent-kafka and protobuf need not be what the tests have.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.java.build import cache_root

PROGRAMS = Path(__file__).parent / "python"
LOCK = PROGRAMS / "requirements.lock"


def frameworks_python() -> Path:
    """Its interpreter, installed first when the cache lacks it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(LOCK.read_bytes() + version.encode()).hexdigest()[:16]
    built = cache_root() / f"frameworks-{digest}"
    python = built / "venv" / "bin" / "python"
    built.mkdir(parents=True, exist_ok=True)
    with (built / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built / "installed").exists():
            print(f"installing Faust and Quix Streams into {built} ...", flush=True)
            shutil.rmtree(built / "venv", ignore_errors=True)
            _run("make a virtual environment", sys.executable, "-m", "venv", str(built / "venv"))
            pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--require-hashes")
            _run("install Faust and Quix Streams", *pip, "-r", str(LOCK))
            (built / "installed").touch()
    return python


def _run(what: str, *command: str) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise SystemExit(f"could not {what}: the messages stand above")


if __name__ == "__main__":
    frameworks_python()
