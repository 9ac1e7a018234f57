"""One Spark and one KafScale for all tests of the Spark package in a process."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafscale_spark
from tests.spark.frames import Read
from tests.spark.topics import Topics
from tests.support.broker import KafscaleBroker
from tests.support.spark.session import spark_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in local mode with two concurrent tasks."""
    directory: Path = tmp_path_factory.mktemp("spark")
    with spark_session(directory) as session:
        yield session


@dataclass(frozen=True)
class Kafscale:
    """The addresses for Kafka clients (``bootstrap``) and for the Spark package (``endpoints``)."""

    bootstrap: str
    endpoints: str


@pytest.fixture(scope="session")
def kafscale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafscale]:
    """KafScale as one process on a local directory."""
    broker = KafscaleBroker(tmp_path_factory.mktemp("kafscale"), {})
    try:
        yield Kafscale(broker.bootstrap, broker.rpc)
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def topics(kafscale: Kafscale) -> Topics:
    return Topics(kafscale.bootstrap)


@pytest.fixture(scope="session")
def read(spark: SparkSession, kafscale: Kafscale) -> Read:
    """`spark.read.format("kafscale")`, registered."""
    kafscale_spark.register(spark)
    return Read(spark, kafscale.endpoints)
