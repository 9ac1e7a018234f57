"""The Spark that the other tests share."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from kafscale_spark.slots import SLOTS
from tests.spark.conftest import Kafscale
from tests.spark.topics import Topics
from tests.support.spark.session import environment, settings


def test_the_version_is_the_supported_one(spark: SparkSession) -> None:
    assert spark.version == pyspark.__version__ == "4.3.0"


def test_python_workers_import_the_package_from_the_tree(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import kafscale
        import kafscale_spark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [kafscale.__file__, kafscale_spark.__file__]})

    root = Path(__file__).parents[2]
    found = spark.range(0, 1, 1, 1).mapInArrow(where, "name string").collect()
    expected = [root / "kafscale" / "__init__.py", root / "spark" / "kafscale_spark" / "__init__.py"]
    assert [Path(row.name) for row in found] == expected


def test_spark_discovers_the_source_where_it_is_installed(kafscale: Kafscale, topics: Topics, tmp_path: Path) -> None:
    """This includes a program that imports the package before it has a session, and a Spark without filter pushdown.

    Its planner gets the number of slots only from the environment.
    """
    topic = topics.make(3)
    for partition in range(3):
        topics.fill(topic, partition, 500)
    program = Path(__file__).parent / "programs" / "imports_first.py"
    done = subprocess.run(
        [sys.executable, str(program), kafscale.endpoints, topic, json.dumps(settings(tmp_path))],
        env={**os.environ, **environment(), SLOTS: "2"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=True,
    )
    assert done.stdout == "6 2\n"
