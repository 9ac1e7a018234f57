"""A standalone cluster of a master and two workers, with the package shipped in both documented ways."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafscale_spark.package import write_package
from tests.spark.conftest import Kafscale
from tests.spark.consume import consume
from tests.spark.standalone import Standalone, standalone_cluster
from tests.spark.topics import Topics
from tests.support.spark.shipping import ROOT, built_wheel, python_with

# A submit starts some ten Python processes, each of which loads pyspark from a zip.
pytestmark = pytest.mark.timeout(600)

PROGRAMS = Path(__file__).parent / "programs"
READ_TOPIC = PROGRAMS / "read_topic.py"
SLOW_SINK = PROGRAMS / "slow_sink.py"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}
ARCHIVE = ROOT / "spark" / "jobs" / "archive.py"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(kafscale: Kafscale) -> str:
    """Three partitions of 500 records, whose values are their offsets."""
    topics = Topics(kafscale.bootstrap)
    topic = topics.make(3)
    for partition in range(3):
        topics.fill(topic, partition, 500)
    return topic


def test_the_package_is_shipped_as_py_files(
    standalone: Standalone, kafscale: Kafscale, topic: str, tmp_path: Path
) -> None:
    """Batches and streams work, although Spark does not pass such files to the planners of streams.

    The driver passes them the number of slots, two.
    """
    package, python = tmp_path / "kafscale.zip", python_with(tmp_path / "env")
    write_package(package)
    arguments = kafscale.endpoints, topic, str(tmp_path / "read")
    options = ["--py-files", str(package), "--conf", "spark.cores.max=2"]
    found = standalone.submit(READ_TOPIC, *arguments, options=options, python=python)
    output = json.loads(found)
    assert output.pop("tasks") == 2
    for rows in map(_whole, output.values()):
        assert {Path(row["python"]) for row in rows} == {python}
        # Each executor has a copy in its own directory.
        assert len({row["directory"] for row in rows}) == len(standalone.workers)
        for row in rows:
            assert row["kafscale"] == f"{row['directory']}/kafscale.zip/kafscale/__init__.py"
            assert row["kafscale_spark"] == f"{row['directory']}/kafscale.zip/kafscale_spark/__init__.py"


def test_a_job_runs_from_an_installed_wheel(
    standalone: Standalone, kafscale: Kafscale, topic: str, tmp_path: Path
) -> None:
    python = python_with(tmp_path / "env", wheel=built_wheel(tmp_path))
    output = tmp_path / "archive"
    arguments = ["--endpoints", kafscale.endpoints, "--topics", topic, "--output", str(output)]
    printed = standalone.submit(ARCHIVE, *arguments, "--checkpoint", str(tmp_path / "checkpoint"), python=python)
    assert printed.startswith("1,500 records read")
    files = (output / f"topic={topic}").glob("date=*/hour=*/*.parquet")
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    _whole([{**row, "value": row["value"].decode()} for row in rows])


def test_rows_staged_twice_by_speculative_tasks_are_written_once(
    standalone: Standalone, kafscale: Kafscale, tmp_path: Path
) -> None:
    """Spark starts a second attempt of a task that has staged all its rows, and that attempt stages them too."""
    topic = Topics(kafscale.bootstrap).make(2)
    package, given, staged = tmp_path / "kafscale.zip", tmp_path / "given", tmp_path / "staged"
    write_package(package)
    given.mkdir()
    staged.mkdir()
    pq.write_table(pa.table({"value": [str(number) for number in range(1000)]}), given / "0.parquet")
    arguments = kafscale.endpoints, topic, str(given), str(staged)
    standalone.submit(SLOW_SINK, *arguments, options=["--py-files", str(package)], conf=SPECULATION)
    assert {path.name for path in staged.glob("?-?")} == {"0-0", "0-1", "1-0"}
    values = sorted(int(record.value or b"") for record in consume(kafscale.bootstrap, topic, 2))
    assert values == list(range(1000))


def _whole(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Check that the rows are those of the whole topic, once each, and return them."""
    found = sorted((row["partition"], row["offset"], row["value"]) for row in rows)
    assert found == [(partition, offset, str(offset)) for partition in range(3) for offset in range(500)]
    return rows
