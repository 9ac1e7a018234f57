"""Spark 4.0.0 with Spark's own Kafka source, for which no later one can be had; made once, in the cache.

``python -m tests.spark.build`` makes it: a virtual environment of ``spark40/requirements.lock`` and the jars of the
source, of which the environment is told through ``spark.jars``. And the classes that the JVMs of the other Spark share.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.java.build import build as build_java
from tests.java.build import cache_root
from tests.spark.classes import share_classes
from tests.spark.session import require_java

_LOCK = Path(__file__).parent / "spark40" / "requirements.lock"


def spark40_python() -> Path:
    """Its Python interpreter, installed first when the cache lacks it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(_LOCK.read_bytes() + version.encode()).hexdigest()[:16]
    built = cache_root() / f"spark40-{digest}"
    python = built / "venv" / "bin" / "python"
    built.mkdir(parents=True, exist_ok=True)
    with (built / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built / "installed").exists():
            print(f"installing Spark 4.0.0 into {built} (a minute) ...", flush=True)
            shutil.rmtree(built / "venv", ignore_errors=True)
            _run("make a virtual environment", sys.executable, "-m", "venv", str(built / "venv"))
            pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--require-hashes")
            _run("install Spark 4.0.0", *pip, "-r", str(_LOCK))
            (built / "installed").touch()
    return python


def kafka_source_jars() -> list[Path]:
    """Spark's Kafka source, and what it needs beside Spark."""
    return sorted(build_java("spark_source").glob("*.jar"))


def _run(what: str, *command: str) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise SystemExit(f"could not {what}: the messages stand above")


if __name__ == "__main__":
    require_java()
    spark40_python()
    kafka_source_jars()
    share_classes()
