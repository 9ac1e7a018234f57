"""Spark 4.0.0 with Spark's own Kafka source, of which no later release is available, in the cache.

It consists of a virtual environment of ``spark40/requirements.lock`` and the jars of the source, which are set with
``spark.jars``. `build` also makes the class archive that the JVMs of the tests' Spark share.
"""

from pathlib import Path

from tests.servers.java import build as build_java
from tests.servers.virtualenv import installed_python
from tests.support.spark.classes import share_classes
from tests.support.spark.session import require_java

_LOCK = Path(__file__).parents[1] / "spark" / "spark40" / "requirements.lock"


def spark40_python() -> Path:
    """Return the Python interpreter. Create the environment if it is not in the cache."""
    return installed_python("spark40", _LOCK, "Spark 4.0.0")


def kafka_source_jars() -> list[Path]:
    """Return the jars of Spark's Kafka source and its dependencies except Spark."""
    return sorted(build_java("spark_source").glob("*.jar"))


def build() -> None:
    """Build everything that is not in the cache."""
    require_java()
    spark40_python()
    kafka_source_jars()
    share_classes()
