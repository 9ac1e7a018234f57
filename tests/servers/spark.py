"""Spark 4.0.0 with Spark's own Kafka source, for which no later one can be had; made once, in the cache.

It is a virtual environment of ``spark40/requirements.lock`` and the jars of the
source, of which the environment is told through ``spark.jars``. And the classes that the JVMs of the other Spark share.
"""

from pathlib import Path

from tests.servers.java import build as build_java
from tests.servers.virtualenv import installed_python
from tests.support.spark.classes import share_classes
from tests.support.spark.session import require_java

_LOCK = Path(__file__).parents[1] / "spark" / "spark40" / "requirements.lock"


def spark40_python() -> Path:
    """Its Python interpreter, installed first when the cache lacks it."""
    return installed_python("spark40", _LOCK, "Spark 4.0.0")


def kafka_source_jars() -> list[Path]:
    """Spark's Kafka source, and what it needs beside Spark."""
    return sorted(build_java("spark_source").glob("*.jar"))


def build() -> None:
    """Make all of it, where the cache lacks it."""
    require_java()
    spark40_python()
    kafka_source_jars()
    share_classes()
