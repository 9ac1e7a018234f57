"""The checker allows a compacted log to lack what compaction may remove, and nothing else."""

import pytest

from kafscale.records.record import Record
from tests.sim.keys import key_of, record_of, value_of, with_key
from tests.support.checker import IDEMPOTENT, Checker
from tests.support.compacted import Compacted, Key

LOG = ("topic", 0)
STAYS, READING = 5.0, 1.0


class _Story:
    """A log whose records are all acked, each with a key; with ``!`` for a tombstone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.checker = Checker()
        self.checker.compacts(LOG, Compacted(key_of, lambda: self.now, stays=STAYS, reading=READING))
        self.values: list[bytes] = []

    def write(self, *keys: str, acked: bool = True) -> None:
        for key in keys:
            name = b"p/%d" % len(self.values)
            value = with_key(name, key.rstrip("!").encode(), None if key.endswith("!") else b"")
            self.checker.sent("p", LOG, value, IDEMPOTENT)
            if acked:
                self.checker.acked(LOG, value, len(self.values), now=self.now)
            self.values.append(value)

    def read(self, *offsets: int, reader: str = "r") -> None:
        for offset in offsets:
            self.checker.read(reader, LOG, offset, self.values[offset])

    def begin(self, reader: str = "r") -> None:
        self.checker.moved(reader, LOG, 0)

    def kinds(self, *offsets: int, last_segment: int = 100) -> set[str]:
        """Return the kinds of complaints if the log has these records at the end."""
        records = [(offset, self.values[offset]) for offset in offsets]
        self.checker.finish(LOG, start=0, end=len(self.values), records=records, last_segment=last_segment)
        return {violation.kind for violation in self.checker.violations}


def test_an_earlier_record_of_a_key_may_be_missing_and_the_last_one_not() -> None:
    story = _Story()
    story.write("a", "b", "a", "b", "a")
    assert story.kinds(3, 4) == set()
    story = _Story()
    story.write("a", "b", "a", "b", "a")
    assert story.kinds(0, 4) == {"removed"}


def test_nothing_is_missing_from_the_last_segment() -> None:
    story = _Story()
    story.write("a", "a", "a")
    assert story.kinds(1, 2, last_segment=1) == set()
    assert story.kinds(2, last_segment=1) == {"gap"}


def test_a_record_is_not_missing_before_a_later_one_of_its_key_was_sent() -> None:
    story = _Story()
    story.write("a", "b")
    story.begin()
    story.read(1)
    story.write("a")
    assert story.kinds(1, 2) == {"removed"}


def test_a_record_that_nobody_knows_may_have_replaced_another_one() -> None:
    story = _Story()
    story.write("a", "b")
    story.write("a", acked=False)
    story.write("a", "b")
    # Offset 2 may have had the record whose ack was lost.
    assert story.kinds(3, 4) == set()


@pytest.mark.parametrize(("after", "kinds"), [(STAYS, set()), (STAYS - 0.1, {"removed"})])
def test_a_tombstone_stays_for_its_time(after: float, kinds: set[str]) -> None:
    story = _Story()
    story.write("a", "a!", "b")
    story.now = after
    assert story.kinds(2) == kinds


@pytest.mark.parametrize(("after", "kinds"), [(READING, set()), (READING - 0.1, {"removed"})])
def test_only_a_slow_reader_has_an_old_value_without_its_tombstone(after: float, kinds: set[str]) -> None:
    story = _Story()
    story.write("a", "a!", "b")
    story.now = STAYS
    story.begin()
    story.read(0)
    story.now += after
    story.read(2)
    assert story.kinds(2) == kinds


def test_the_log_at_the_end_has_no_old_value_without_its_tombstone() -> None:
    story = _Story()
    story.write("a", "a!", "b")
    story.now = STAYS
    assert story.kinds(0, 2) == {"removed"}


def test_records_at_the_end_of_what_was_read_may_be_missing_too() -> None:
    story = _Story()
    story.write("a", "b", "b", "a")
    story.begin()
    story.read(2)
    story.checker.passed("r", LOG, 3)
    assert story.kinds(2, 3) == set()
    story.checker.passed("r", LOG, 4)
    assert story.kinds(2, 3) == {"removed"}


def test_an_answer_may_leave_out_what_was_removed() -> None:
    story = _Story()
    story.write("a", "a")
    for offset in (0, 1):
        story.checker.leaves_out(LOG, offset, f"it lacks {offset}")
    assert story.kinds(1) == {"left-out"}
    assert len(story.checker.violations) == 1


def test_the_parts_of_a_record_tell_which_one_it_is() -> None:
    plain, valued, tombstone = b"p/1/...", with_key(b"p/2", b"k", b".."), with_key(b"p/3", b"k", None)
    assert [key_of(value) for value in (plain, valued, tombstone)] == [
        Key(b"", False),
        Key(b"k", False),
        Key(b"k", True),
    ]
    for value in (plain, valued, tombstone):
        assert value_of(record_of(value, 0, 0)) == value
    assert value_of(Record(0, 0, b"other", valued)) not in (plain, valued, tombstone)
