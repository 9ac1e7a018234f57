"""Spark in the tests' own process: its JVM runs on loopback with little memory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.servers.tools import missing

ROOT = Path(__file__).parents[3]
IMPORT_PATH = os.pathsep.join([str(ROOT / "spark"), str(ROOT)])
"""The directories of ``kafscale_spark`` and ``kafscale`` in the tree, for Python workers."""

OLDEST_JAVA = 17
SHARED_CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""The archive of `classes.py` for this Python's pyspark. A JVM that cannot use it starts without."""

_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
QUICK_JAVA = f"{_QUICK} -XX:SharedArchiveFile={SHARED_CLASSES} -Xlog:disable"
"""Options for a JVM that should start quickly rather than run fast."""
SHARING_JAVA = f"{_QUICK} -XX:ArchiveClassesAtExit={SHARED_CLASSES} -Xlog:disable"
"""Options for the JVM whose classes the others share."""


def require_java() -> None:
    """Raise ToolMissing if the Java that Spark would use is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    wanted = missing(f"Java {OLDEST_JAVA} or later (JAVA_HOME, or java on the path)", "maven")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise wanted from None
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise wanted


def settings(directory: Path, java: str = QUICK_JAVA) -> dict[str, str]:
    """Return the settings of every Spark of the tests. ``java``: options of its driver's JVM."""
    java = f"{java} -Djava.io.tmpdir={directory} -Dderby.system.home={directory}"
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        # Tasks are not retried unless a test sets this.
        "spark.task.maxFailures": "1",
        "spark.sql.session.timeZone": "UTC",
    }


def environment(python: str = sys.executable) -> dict[str, str]:
    """Return the variables of a Spark process whose Python workers run ``python`` and import from the tree."""
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYTHONPATH": IMPORT_PATH,
    }


@contextmanager
def spark_session(directory: Path, java: str = QUICK_JAVA) -> Iterator[SparkSession]:
    """Run the single session of this process, in local mode with two concurrent tasks.

    Afterwards its JVM and its Python workers have ended.
    """
    require_java()
    before = dict(os.environ)
    # Another Spark's home and settings must not apply.
    for name in [name for name in before if name.startswith(("SPARK_", "PYSPARK_"))]:
        del os.environ[name]
    os.environ.update(environment())
    try:
        builder = SparkSession.builder.master("local[2]").appName("kafscale-tests")
        for name, value in settings(directory, java).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    finally:
        os.environ.clear()
        os.environ.update(before)
    try:
        yield session
    finally:
        session.stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        # The JVM ends when its input is closed.
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(timeout=30)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
