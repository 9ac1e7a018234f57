"""The totals of a process: the sums of its counters."""

from kafscale.objects.metrics import OperationCounters, Request
from kafscale.process.metrics import Metrics
from kafscale.process.totals import Totals
from kafscale.v1.process_pb2 import TotalsRequest
from services.storage.counters import StorageCounters
from services.storage.monitoring import families
from services.storage.settings import StorageSettings


async def test_totals_are_those_of_the_metrics_and_a_service_that_does_not_run_counts_nothing() -> None:
    metrics = Metrics()
    totals = Totals(metrics)
    empty = await totals.totals(TotalsRequest())
    assert (empty.produced_records, empty.puts, empty.read_bytes) == (0, 0, 0)
    objects = OperationCounters()
    metrics.add(objects.families())
    for kind, size, outcome in (
        ("put_if_absent", 100, "ok"),
        ("put_if_absent", 100, "unavailable"),
        ("replace_if_match", 10, "ok"),
        ("get", 7, "ok"),
        ("get_range", 5, "ok"),
        ("head", 0, "not_found"),
        ("list_from", 0, "ok"),
        ("delete_many", 0, "ok"),
    ):
        request = Request(kind, size, 0.0)
        request.outcome = outcome
        objects.began(request)
        objects.ended(request)
    found = await totals.totals(TotalsRequest())
    assert (found.puts, found.gets, found.lists, found.deletes) == (3, 3, 1, 1)
    assert (found.stored_bytes, found.read_bytes) == (110, 12)
    assert found.process == empty.process != Totals(metrics).current().process


async def test_the_counters_of_storage_are_found_by_their_names() -> None:
    counters = StorageCounters()
    counters.appended_records, counters.appended_bytes = 3, 300
    counters.fetched_bytes, counters.scanned_bytes = 30, 40
    metrics = Metrics()
    metrics.add(families(counters, lambda: None, StorageSettings()))
    found = Totals(metrics).current()
    assert (found.produced_records, found.produced_bytes) == (3, 300)
    assert (found.fetched_bytes, found.scanned_bytes) == (30, 40)
