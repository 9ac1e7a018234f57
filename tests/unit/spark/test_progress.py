"""Progress of long work: a line that is overwritten on a terminal, and nothing elsewhere."""

import json
import threading
from io import StringIO

import pytest

from kafscale_spark import progress
from kafscale_spark.progress import Pace, amount, size, ticking
from kafscale_spark.watching import Totals

WAIT_SECONDS = 30


class _Terminal(StringIO):
    """A terminal that sets ``shown`` when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        self.shown.set()
        return written


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0.001)


def test_a_terminal_shows_progress_until_the_work_is_done() -> None:
    terminal, numbers = _Terminal(), iter(range(1_000_000))
    with ticking(lambda: f"{next(numbers)} rows", terminal):
        for _ in range(2):
            terminal.shown.clear()
            assert terminal.shown.wait(WAIT_SECONDS)
    lines = terminal.getvalue().split("\r")
    # Each line overwrites all of the one before.
    assert [line.rstrip() for line in lines[1:3]] == ["0 rows", "1 rows"]
    assert len({len(line) for line in lines[1:-1]}) == 1
    assert lines[-2:] == [" " * len(lines[1]), ""]


def test_the_line_is_removed_if_the_work_fails() -> None:
    terminal = _Terminal()

    def work() -> None:
        with ticking(lambda: "x" * 1000, terminal):
            assert terminal.shown.wait(WAIT_SECONDS)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    shown = terminal.getvalue().split("\r")
    assert set(shown[1]) == {"x"}
    assert shown[-2].strip() == shown[-1] == ""
    assert len(shown[1]) == len(shown[-2])


def test_nothing_is_printed_without_a_terminal() -> None:
    out = StringIO()
    with ticking(lambda: "a line", out):
        pass
    assert out.getvalue() == ""


def test_the_rate_covers_the_whole_time() -> None:
    now = 100.0
    pace = Pace(lambda: now)
    assert pace.per_second(0) == 0
    now = 104.0
    assert (pace.per_second(10), pace.seconds) == (2.5, 4.0)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 KB"), (2e9, "2.0 GB"), (1.5e15, "1,500.0 TB")]
)
def test_bytes_are_printed_with_units(count: float, text: str) -> None:
    assert size(count) == text
    assert amount(12345.4) == "12,345"


def _reported(batch: int, rows: int, latest: int, *, late: int = 0) -> dict[str, object]:
    return {
        "runId": "run",
        "batchId": batch,
        "observedMetrics": {"kafscale_rows": {"rows": rows, "bytes": 10 * rows, "bad": 1}},
        "sources": [{"latestOffset": json.dumps({"t": {"0": latest}}), "endOffset": json.dumps({"t": {"0": 60}})}],
        "stateOperators": [{"numRowsDroppedByWatermark": late}],
    }


def test_progress_of_queries_is_added_up_once() -> None:
    totals = Totals()
    for _ in range(2):
        totals.add("a", _reported(0, 50, 100))
    totals.add("a", _reported(1, 10, 90, late=3))
    totals.add("b", _reported(0, 1, 61))
    assert (totals.rows, totals.bytes, totals.bad, totals.late, totals.batches) == (61, 610, 3, 3, 3)
    assert totals.lag == {"a": 30, "b": 1}
