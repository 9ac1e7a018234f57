"""The data source, called like Spark calls it, without Spark."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, LessThan, StringStartsWith

from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.planning import Split
from kafscale_spark.source import KafscaleDataSource
from tests.unit.spark.storage import Storage


@pytest.fixture
def storage() -> Storage:
    """A topic of 100 records in batches of 10."""
    made = Storage()
    [log] = made.make("orders")
    for _ in range(10):
        log.add(10)
    return made


def _read(storage: Storage, **options: str) -> pa.Table:
    """Return all rows of the tasks of a batch."""
    with storage.running() as [endpoint]:
        source = KafscaleDataSource({"kafscale.endpoints": endpoint, "subscribe": "orders"} | options)
        reader = source.reader(source.schema())
        found: Iterator[pa.RecordBatch] = (batch for split in reader.partitions() for batch in reader.read(split))
        return pa.Table.from_batches(found)


@pytest.mark.parametrize("columns", ["partition", "topic", "topic,partition"])
def test_rows_of_constant_columns_are_counted_without_reading_records(storage: Storage, columns: str) -> None:
    """The way to count records with pyspark 4.0, which loses rows without columns."""
    rows = _read(storage, columns=columns)
    assert rows.to_pylist() == [{name: {"partition": 0, "topic": "orders"}[name] for name in columns.split(",")}] * 100
    assert {scan.mode for scan in storage.scans_asked} == {pb.ScanRequest.COUNT}


def test_a_reader_with_filter_support_works_in_a_spark_without_filters(storage: Storage) -> None:
    """Like the check of `pyspark.sql.worker.plan_data_source_read`; with filters, another worker calls the method."""
    with storage.running() as [endpoint]:
        source = KafscaleDataSource({"kafscale.endpoints": endpoint, "subscribe": "orders"})
        reader = source.reader(source.schema())
        assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
        other = StringStartsWith(("value",), "x")
        assert list(reader.pushFilters([LessThan(("offset",), 30), other])) == [other]
        [task] = reader.partitions()
        assert isinstance(task, Split)
        assert [part.end for part in task.ranges] == [30]


def test_spark_discovers_the_source() -> None:
    """Like `pyspark.sql.worker.lookup_data_sources`."""
    [name] = [module.name for module in iter_modules() if module.name == "pyspark_kafscale"]
    found = import_module(name).DefaultSource
    assert issubclass(found, DataSource)
    assert found.name() == "kafscale"
