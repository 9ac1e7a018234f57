"""Live tails: what they show, what they leave out, and that a browser that does not read costs no memory."""

from typing import Any

import pytest
import trio

from kafscale.errors import Unavailable
from services.console.records.query import parse_query
from services.console.records.tail import Tail
from tests.unit.console.records.fakes import FETCH_BYTES, Log, sieve, turns


class Browser:
    """What a page receives. It reads only while ``reads`` is set."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.left_out: list[tuple[int, int]] = []
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.places: list[tuple[int, int]] = []
        self.positions: dict[str, str] = {}
        self.reads = trio.Event()
        self.reads.set()
        self.largest = 0

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.largest = max(self.largest, len(message.get("records", [])))
        self.offsets += [int(each["offset"]) for each in message.get("records", [])]
        self.left_out += [(int(each["from"]), int(each["to"])) for each in message.get("left_out", [])]
        self.places += [(each["partition"], int(each["offset"])) for each in message.get("records", [])]
        self.notes += message.get("faults", [])
        self.positions |= message.get("positions", {})
        if "fault" in message:
            self.faults.append(message["fault"])

    @property
    def seen(self) -> set[int]:
        """The offsets that were shown, or said to be left out."""
        return {*self.offsets, *(offset for first, until in self.left_out for offset in range(first, until))}


def tail(log: Log, **values: str) -> Tail:
    query = parse_query({"start": "end", **values}, most=1000, limit=20)
    return Tail(query, sieve(query), log.reader, lambda: True, largest=1 << 20)


async def write(log: Log, seconds: float, *, rate: int) -> None:
    for _ in range(round(seconds * 10)):
        log.append([b"v" * 20] * (rate // 10))
        await trio.sleep(0.1)


async def test_a_tail_under_load_shows_its_rate_and_accounts_for_every_record(autojump_clock: object) -> None:
    log, browser = Log(), Browser()
    log.append([b"old"] * 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log, limit="20").run, browser.send)
        await trio.sleep(0.2)
        await write(log, 20, rate=5000)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert 400 <= len(browser.offsets) <= 520
    assert browser.largest <= 20
    assert browser.seen == set(range(10, log.ends[0]))
    assert len(browser.offsets) == len(set(browser.offsets))
    # What is left out is not read.
    assert log.fetched < sum(len(batch) for _, batch in log.batches[0])


async def test_records_that_were_there_are_all_shown_at_the_rate(autojump_clock: object) -> None:
    log, browser = Log(), Browser()
    log.append([b"v"] * 500)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log, start="beginning", limit="50").run, browser.send)
        await trio.sleep(5)
        assert 200 <= len(browser.offsets) <= 300
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert browser.offsets == list(range(500))
    assert browser.left_out == []


async def test_a_browser_that_does_not_read_is_told_what_it_missed(autojump_clock: object) -> None:
    log, browser = Log(), Browser()
    browser.reads = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log, at="0:0", start="beginning").run, browser.send)
        await write(log, 10, rate=1000)
        before = log.fetched
        await write(log, 10, rate=1000)
        assert log.fetched == before
        browser.reads.set()
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert browser.seen == set(range(log.ends[0]))
    assert sum(until - first for first, until in browser.left_out) > 15_000


async def test_a_filter_reads_everything_that_it_can_and_says_what_it_could_not(autojump_clock: object) -> None:
    log, browser = Log(), Browser()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log, value="wanted").run, browser.send)
        await trio.sleep(0.2)
        for number in range(100):
            log.append([b"other" * 10] * 50 + [b"wanted %d" % number])
            await trio.sleep(0.3)
        assert browser.offsets == [51 * number + 50 for number in range(100)]
        assert browser.left_out == []
        # More than a tail fetches.
        for _ in range(200):
            log.append([b"x" * (FETCH_BYTES // 2)] * 8)
            await trio.sleep(0.1)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert browser.left_out
    assert browser.positions == {"0": str(log.ends[0])}


async def test_a_tail_survives_brokers_that_are_gone_and_goes_on_where_it_was(autojump_clock: object) -> None:
    log, browser = Log(), Browser()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log).run, browser.send)
        await trio.sleep(1)
        log.append([b"a"])
        await trio.sleep(2)
        log.is_gone = True
        log.append([b"b"])
        await trio.sleep(5)
        assert browser.faults[-1] == "no broker answers"
        log.is_gone = False
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert browser.offsets == [0, 1]
    assert browser.faults[-1] == ""


async def test_many_tails_keep_only_so_many_answers_in_memory(autojump_clock: object) -> None:
    log, shared = Log(), turns(fetching=2)
    browsers = [Browser() for _ in range(30)]
    query = parse_query({"start": "end"}, most=1000, limit=20)
    async with trio.open_nursery() as nursery:
        for browser in browsers:
            each = Tail(query, sieve(query, shared), log.reader, lambda: True, largest=1 << 20)
            nursery.start_soon(each.run, browser.send)
        for _ in range(20):
            log.append([b"x" * 50_000])
            await trio.sleep(0.5)
        log.append([b"last"])
        await trio.sleep(3)
        assert log.answers <= 2
        nursery.cancel_scope.cancel()
    assert log.most_answers <= 2
    assert all(browser.offsets[-1] == 20 for browser in browsers)


@pytest.mark.parametrize("start", [{}, {"at": "0:2"}])
async def test_partitions_that_are_added_are_followed_from_their_beginning(
    start: dict[str, str], autojump_clock: object
) -> None:
    log, browser = Log(), Browser()
    log.append([b"old"] * 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log, **start).run, browser.send)
        await trio.sleep(1)
        log.add_partition()
        log.append([b"v"] * 3, partition=1)
        await trio.sleep(12)
        nursery.cancel_scope.cancel()
    assert browser.places == [(1, 0), (1, 1), (1, 2)]
    # A page that reconnects does not know a partition that was added meanwhile.
    log.add_partition()
    log.append([b"v"], partition=2)
    again = Browser()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log, at="0:2,1:3").run, again.send)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert again.places == [(2, 0)]


async def test_a_topic_that_is_created_again_is_followed_from_its_beginning(autojump_clock: object) -> None:
    log, browser = Log(), Browser()
    log.append([b"old"] * 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log).run, browser.send)
        await trio.sleep(1)
        log.recreate()
        log.append([b"new"] * 3)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert browser.offsets == [0, 1, 2]
    (note,) = browser.notes
    assert "partition 0 ends at offset 3, before offset 10" in note
    assert browser.faults == [""]


async def test_a_fault_is_not_taken_back_before_a_fetch_succeeds(autojump_clock: object) -> None:
    log, browser = Log(), Browser()

    async def refused(*_: object) -> None:
        raise Unavailable("the broker does not answer")

    fetch, log.fetch = log.fetch, refused  # type: ignore[method-assign, assignment]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log).run, browser.send)
        await trio.sleep(5)
        assert set(browser.faults) == {"the broker does not answer"}
        log.fetch = fetch  # type: ignore[method-assign]
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert browser.faults[-1] == ""


async def test_deleted_offsets_and_how_many_faults_are_not_named_are_said(autojump_clock: object) -> None:
    log, browser = Log(), Browser()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail(log).run, browser.send)
        await trio.sleep(0.2)
        for number in range(25):
            log.warn(f"the offset {number} has been deleted")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert browser.notes == [*(f"the offset {number} has been deleted" for number in range(20)), "and 5 more"]
