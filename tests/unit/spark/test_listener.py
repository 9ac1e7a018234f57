"""The listener's report of a query's progress."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kafscale_spark.listener import KafscaleListener
from kafscale_spark.stream_offsets import StreamOffsets
from tests.servers.ports import free_ports
from tests.unit.spark.storage import Storage

_IDS = {"a": b"\x01" * 16}
_BEGUN = StreamOffsets({("a", 0): 10, ("a", 1): 0}, _IDS)


def _event(
    latest: object = None,
    end: object = None,
    *,
    name: str | None = "archive",
    start: StreamOffsets | None = _BEGUN,
) -> Any:
    source = SimpleNamespace(
        startOffset=None if start is None else json.dumps(start.json()),
        endOffset=json.dumps(end or StreamOffsets({("a", 0): 60, ("a", 1): 20}, _IDS).json()),
        latestOffset=None if latest is None else json.dumps(latest),
        numInputRows=70,
    )
    progress = SimpleNamespace(id="id-1", name=name, batchId=3, sources=[source], durationMs={"triggerExecution": 2000})
    return SimpleNamespace(progress=progress)


def _latest(first: int, second: int) -> dict[str, Any]:
    return StreamOffsets({("a", 0): first, ("a", 1): second}, _IDS).json()


def test_progress_becomes_a_line_and_metrics(caplog: pytest.LogCaptureFixture) -> None:
    listener = KafscaleListener()
    with caplog.at_level(logging.INFO, "kafscale_spark.progress"):
        listener.onQueryProgress(_event(_latest(1100, 20)))
        listener.onQueryProgress(_event(_latest(100, 25), name=None))
    assert caplog.messages == [
        "archive, batch 3: 70 rows, 35 rows/s, 1,040 offsets behind (a-0 1,040)",
        "id-1, batch 3: 70 rows, 35 rows/s, 45 offsets behind (a-0 40, a-1 5)",
    ]
    assert listener.progress["archive"].behind == {"a-0": 1040, "a-1": 0}
    assert listener.progress["id-1"].offsets_behind == 45


def test_missing_values_stay_unknown() -> None:
    listener = KafscaleListener()
    listener.onQueryProgress(_event())
    assert str(listener.progress["archive"]) == "archive, batch 3: 70 rows, 35 rows/s, offsets behind unknown"
    assert listener.progress["archive"].offsets_behind is None


def test_other_sources_are_ignored() -> None:
    listener = KafscaleListener()
    listener.onQueryProgress(_event(end={"a": {"0": 1}}))
    assert listener.progress == {}


def test_storage_is_asked_for_ends_and_sizes() -> None:
    storage = Storage()
    for log in storage.make("a", 2):
        for _ in range(10):
            log.add(10)
    with storage.running() as [endpoint]:
        listener = KafscaleListener({"kafscale.endpoints": endpoint})
        listener.onQueryProgress(_event())
    found = listener.progress["archive"]
    assert found.behind == {"a-0": 40, "a-1": 80}
    taken = sum(len(batch) for log, n in zip(storage.topics["a"], [5, 2], strict=True) for batch in log.batches[:n])
    assert found.bytes_per_second == taken / 2
    assert "0.0 MB/s, 120 offsets behind (a-1 80, a-0 40)" in str(found)


@pytest.mark.parametrize(
    ("start", "batches"), [(StreamOffsets({("a", 0): 10}, _IDS), (slice(1, 6), slice(0, 2))), (None, None)]
)
def test_bytes_of_new_topics_and_of_a_first_batch_are_counted(
    start: StreamOffsets | None, batches: tuple[slice, slice] | None
) -> None:
    """Spark does not report the start of a query's first batch, which gets no rate rather than a wrong one."""
    storage = Storage()
    for log in storage.make("a", 2):
        for n in range(10):
            log.add(10, size=10 + n)
    with storage.running() as [endpoint]:
        listener = KafscaleListener({"kafscale.endpoints": endpoint})
        listener.onQueryProgress(_event(start=start))
    found = listener.progress["archive"]
    assert found.behind == {"a-0": 40, "a-1": 80}
    if batches is None:
        assert found.bytes_per_second is None
        assert "70 rows, 35 rows/s, 120 offsets behind" in str(found)
    else:
        logs = storage.topics["a"]
        taken = sum(len(batch) for log, part in zip(logs, batches, strict=True) for batch in log.batches[part])
        assert found.bytes_per_second == taken / 2


def test_unavailable_storage_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    listener = KafscaleListener({"kafscale.endpoints": nobody, "kafscale.retryTimeout": "0s"})
    listener.onQueryProgress(_event(_latest(100, 20)))
    assert listener.progress["archive"].offsets_behind is None
    assert "the lag of a query is unknown" in caplog.text
