"""Spark 4.0.0 with Spark's own Kafka source, which has no later release. Installed once, in the cache.

It consists of a virtual environment from ``spark40/requirements.lock`` and the source's jars, which ``spark.jars``
names there. This module also builds the class archive that the JVMs of the other Spark share.
"""

from pathlib import Path

from tests.servers.java import build as build_java
from tests.servers.virtualenv import installed_python
from tests.support.spark.classes import share_classes
from tests.support.spark.session import require_java

_LOCK = Path(__file__).parents[1] / "spark" / "spark40" / "requirements.lock"


def spark40_python() -> Path:
    """Return its Python interpreter, installed if the cache lacks it."""
    return installed_python("spark40", _LOCK, "Spark 4.0.0")


def kafka_source_jars() -> list[Path]:
    """Return the jars of Spark's Kafka source and of its dependencies outside Spark."""
    return sorted(build_java("spark_source").glob("*.jar"))


def build() -> None:
    """Build everything that the cache lacks."""
    require_java()
    spark40_python()
    kafka_source_jars()
    share_classes()
