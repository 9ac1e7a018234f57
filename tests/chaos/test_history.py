"""The checker gets the clients' events and complains if records are lost, swapped, duplicated or changed."""

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.chaos.history import RECONNECTING, Event, events, judge
from tests.support.chaos.workload import KEYS, Logs, key_of
from tests.support.checker import IDEMPOTENT
from tests.support.compacted import Key

PROMISES = {"p": IDEMPOTENT, "once": RECONNECTING}
LAST = "last"
COUNT = 6


def _history(log: list[str]) -> list[Event]:
    """Two producers whose acked records are ``log``, a reader during the run, and a reader at the end."""
    times = map(float, itertools.count())
    history: list[Event] = []

    def tell(client: str, words: str) -> None:
        history.append((next(times), client, words.split()))

    for name in log:
        client, partition, number = name.split("/")
        tell(client, f"s {partition} {number}")
    for offset, name in enumerate(log):
        client, partition, number = name.split("/")
        tell(client, f"a {partition} {number} {offset}")
    for reader in ("reader", LAST):
        tell(reader, "m 0 0")
        tell(reader, f"w 0 0 {len(log)} {len(history)}")
        for offset, name in enumerate(log):
            tell(reader, f"r 0 {offset} {name}")
    return history


LOG = [f"{client}/0/{number}" for number in range(COUNT) for client in PROMISES]


def _judged(history: list[Event]) -> list[str]:
    return judge(history, PROMISES, last_reader=LAST).complaints


def test_a_clean_history_has_no_complaints_and_correct_sums() -> None:
    verdict = judge(_history(LOG), PROMISES, last_reader=LAST)
    assert verdict.complaints == []
    assert (verdict.in_log, verdict.read) == (12, {"reader": 12, LAST: 12})
    assert [(sums.sent, sums.acked) for sums in verdict.producers.values()] == [(6, 6), (6, 6)]
    assert verdict.producers["p"].longest_wait == 12.0
    assert verdict.longest_wait == 12.0  # from the first record sent to the first ack


def _without(history: list[Event], reader: str, offset: int, *, moves: bool = True) -> list[Event]:
    """Remove the record at ``offset`` from what ``reader`` received. If ``moves``, later records move down by one."""

    def shifted(words: list[str]) -> list[str]:
        if words[0] == "r" and int(words[2]) > offset:
            return [*words[:2], str(int(words[2]) - 1), words[3]]
        return [*words[:3], str(int(words[3]) - 1), words[4]] if words[0] == "w" else words

    return [
        (time, client, shifted(words) if moves and client == reader else words)
        for time, client, words in history
        if not (client == reader and words[0] == "r" and words[2] == str(offset))
    ]


def _swapped(history: list[Event], first: str, second: str) -> list[Event]:
    """Swap two records in all events, including the acks."""
    there = {first: second, second: first}
    return [
        (time, client, [*words[:3], there.get(words[3], words[3])])
        if words[0] == "r"
        else (time, client, [*words[:2], there.get(f"{client}/0/{words[2]}", words[2]).rpartition("/")[2], words[3]])
        if words[0] == "a"
        else (time, client, words)
        for time, client, words in history
    ]


def _renamed(history: list[Event], reader: str, old: str, new: str) -> list[Event]:
    return [
        (time, client, [*words[:3], new] if client == reader and words[0] == "r" and words[3] == old else words)
        for time, client, words in history
    ]


DOCTORED: dict[str, tuple[Callable[[list[Event]], list[Event]], str]] = {
    "an acked record is gone": (lambda history: _without(history, LAST, 4), "lost"),
    "what was read is gone": (lambda history: _without(history, LAST, 11), "vanished"),
    "the end went back": (lambda history: _without(history, LAST, 11), "went-back"),
    "two records are swapped": (lambda history: _swapped(history, "p/0/2", "p/0/3"), "reordered"),
    "two of the other producer are swapped at the end": (
        lambda history: _renamed(
            _renamed(_renamed(history, LAST, "once/0/2", "?"), LAST, "once/0/3", "once/0/2"), LAST, "?", "once/0/3"
        ),
        "changed",
    ),
    "a record is there twice": (lambda history: _renamed(history, LAST, "p/0/5", "p/0/2"), "doubled"),
    "two records were acked at one offset": (
        lambda history: [
            (time, who, ["a", "0", "5", "3"] if words[:3] == ["a", "0", "5"] else words) for time, who, words in history
        ],
        "offset-twice",
    ),
    "readers see different records": (lambda history: _renamed(history, "reader", "p/0/2", "p/0/3"), "changed"),
    "a record that nobody sent": (lambda history: _renamed(history, LAST, "p/0/2", "p/0/77"), "unknown"),
    "a reader skips a record": (
        lambda history: [event for event in history if event[1:] != ("reader", ["r", "0", "3", LOG[3]])],
        "gap",
    ),
    "an idempotent producer gave a record up": (
        lambda history: [
            (time, who, ["f", "0", "5", "FATAL"] if who == "p" and words[:3] == ["a", "0", "5"] else words)
            for time, who, words in history
        ],
        "p gave up p/0/5: FATAL",
    ),
    "a reader was history to skip": (
        lambda history: [*history, (99.0, "reader", ["e", "offset", "out", "of", "range"])],
        "reader: offset out of range",
    ),
    "nobody looked at the end": (lambda history: [event for event in history if event[1] != LAST], "nobody read"),
}


@pytest.mark.parametrize("case", DOCTORED)
def test_a_wrong_history_causes_a_complaint(case: str) -> None:
    doctor, complaint = DOCTORED[case]
    complaints = _judged(doctor(_history(LOG)))
    assert any(text.startswith(complaint) for text in complaints), complaints


def test_a_failed_record_of_a_producer_without_retries_may_be_late_or_missing() -> None:
    history = [
        (time, who, ["f", "0", "2", "TIMED_OUT"] if who == "once" and words[:3] == ["a", "0", "2"] else words)
        for time, who, words in _history(LOG)
    ]
    assert _judged(history) == []
    late = [name for name in LOG if name != "once/0/2"] + ["once/0/2"]
    assert (
        _judged([event for event in _history(late) if not (event[1] == "once" and event[2][:3] == ["a", "0", "2"])])
        == []
    )


def test_a_repeating_reader_may_go_back_but_not_skip_records() -> None:
    def complaints(*offsets: int) -> list[str]:
        history = [event for event in _history(LOG) if event[1] != "reader"]
        history += [(60.0 + at, "reader", ["r", "0", str(offset), LOG[offset]]) for at, offset in enumerate(offsets)]
        history.append((99.0, "reader", ["n", "_TRANSPORT", "gone"]))
        verdict = judge(sorted(history), PROMISES, last_reader=LAST, repeating={"reader"})
        assert verdict.noted == {"reader": {"_TRANSPORT"}}
        return [text.partition(":")[0] for text in verdict.complaints]

    assert complaints(0, 1, 2, 0, 1, 1, 2, 3) == []
    assert complaints(1, 2) == ["gap"]
    assert complaints(0, 1, 2, 0, 2) == ["gap"]


def test_a_group_never_reads_below_an_acknowledged_commit() -> None:
    def complaints(*, again: int) -> list[str]:
        history = [event for event in _history(LOG) if event[1] != "reader"]
        history += [(60.0 + at, "reader", ["r", "0", str(at), LOG[at]]) for at in range(4)]
        history += [(70.0, "reader", ["c", "0", "3"]), (71.0, "reader", ["r", "0", str(again), LOG[again]])]
        verdict = judge(history, PROMISES, last_reader=LAST, repeating={"reader"}, committing={"reader"})
        return [text.partition(":")[0] for text in verdict.complaints]

    assert complaints(again=3) == []
    assert complaints(again=2) == ["commit-lost"]


def test_a_compacted_log_may_lack_only_records_that_are_not_the_last_of_their_keys() -> None:
    def complaints(offset: int, *, keys: int) -> set[str]:
        verdict = judge(
            _without(_history(LOG), LAST, offset, moves=False),
            PROMISES,
            last_reader=LAST,
            compacted=["0"],
            key_of=lambda name: Key(key_of(name.decode(), keys).encode(), False),
        )
        return {text.partition(":")[0] for text in verdict.complaints}

    assert complaints(LOG.index("p/0/3"), keys=2) == set()
    assert complaints(LOG.index("p/0/3"), keys=0) == {"removed"}
    # Every fourth record has a key of its own.
    assert complaints(LOG.index("p/0/4"), keys=2) == {"removed"}
    assert complaints(len(LOG) - 1, keys=2) == {"gap", "removed"}


def test_a_damaged_record_of_a_compacted_log_causes_a_complaint() -> None:
    verdict = judge(
        _renamed(_history(LOG), LAST, "p/0/2", "p/0/damaged"),
        PROMISES,
        last_reader=LAST,
        compacted=["0"],
        key_of=lambda name: Key(key_of(name.decode(), 2).encode(), False),
    )
    assert {text.partition(":")[0] for text in verdict.complaints} == {"changed", "unknown"}


_MOST_BYTES_OF_A_RECORD = 500


def test_the_judgement_of_a_long_compacted_log_needs_little_memory() -> None:
    count = 4_000

    def key(name: bytes) -> Key:
        return Key(key_of(name.decode(), KEYS).encode(), False)

    names = [f"p/0/{number}" for number in range(count)]
    last = {key(name.encode()): offset for offset, name in enumerate(names)}
    kept = sorted(last.values())

    def long() -> Iterator[Event]:
        for offset in range(count):
            yield offset, "p", ["s", "0", str(offset)]
            yield offset, "p", ["a", "0", str(offset), str(offset)]
        for reader in ("one", "two", LAST):
            yield count, reader, ["m", "0", "0"]
            yield count, reader, ["w", "0", "0", str(count), str(count)]
            for offset in kept:
                yield count, reader, ["r", "0", str(offset), f"p/0/{offset}"]

    tracemalloc.start()
    try:
        verdict = judge(long(), PROMISES, last_reader=LAST, compacted=["0"], key_of=key)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (verdict.complaints, verdict.in_log) == ([], count)
    assert peak / count < _MOST_BYTES_OF_A_RECORD


def test_logs_are_the_partitions_of_all_topics_in_turn() -> None:
    logs = Logs(["a", "b", "c"], 6)
    assert [logs.place(log) for log in range(logs.count)] == [(name, at) for at in range(2) for name in "abc"]
    assert [logs.number(*logs.place(log)) for log in range(logs.count)] == [*range(logs.count)]
    assert (logs.of_each_topic, logs.of("b")) == (2, frozenset({"1", "4"}))


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    (tmp_path / "a.history").write_text("1.5 s 0 0\n3.000001 a 0 0 0\n")
    (tmp_path / "b.history").write_text("0.25 m 0 0\n2.0 e some text\n")
    (tmp_path / "b.stderr").write_text("not a history")
    assert list(events(tmp_path)) == [
        (0.25, "b", ["m", "0", "0"]),
        (1.5, "a", ["s", "0", "0"]),
        (2.0, "b", ["e", "some", "text"]),
        (3.000001, "a", ["a", "0", "0", "0"]),
    ]
