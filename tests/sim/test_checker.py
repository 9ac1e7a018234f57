"""The checker complains of every history that breaks a promise, and of no other."""

from collections.abc import Callable, Iterable

import pytest

from tests.support.checker import IDEMPOTENT, LEADER, REPEATED, UNORDERED, UNREPEATED, Checker, Promise

LOG = ("topic", 0)


def _value(number: int) -> bytes:
    return b"p/%d" % number


class _Story:
    """A history of one log in a short notation."""

    def __init__(self, promise: Promise = IDEMPOTENT, records: int = 3) -> None:
        self.checker = Checker()
        for number in range(records):
            self.checker.sent("p", LOG, _value(number), promise)

    def acked(self, number: int, offset: int, now: float = 0.0) -> None:
        self.checker.acked(LOG, _value(number), offset, now=now)

    def read(self, offset: int, number: int, reader: str = "r") -> None:
        self.checker.read(reader, LOG, offset, _value(number))

    def asked(self, *, start: int = 0, end: int = -1, asked: float, answered: float) -> None:
        self.checker.watermarks(LOG, start=start, end=end, asked=asked, answered=answered)

    def kinds(self, numbers: Iterable[int], start: int = 0, end: int | None = None) -> set[str]:
        """Return the kinds of complaints if the log ends with these records, from offset ``start`` on."""
        records = [(start + i, _value(number)) for i, number in enumerate(numbers)]
        self.checker.finish(LOG, start=start, end=start + len(records) if end is None else end, records=records)
        return {violation.kind for violation in self.checker.violations}


@pytest.mark.parametrize("promise", [IDEMPOTENT, UNREPEATED, REPEATED, UNORDERED, LEADER])
def test_a_good_history_causes_no_complaint(promise: Promise) -> None:
    story = _Story(promise)
    story.read(0, 0)
    story.acked(0, 0, now=1.0)
    story.asked(end=1, asked=2.0, answered=3.0)
    story.acked(1, 1, now=4.0)
    story.read(1, 1)
    story.read(2, 2)
    assert story.kinds([0, 1, 2]) == set()
    assert story.checker.records_acked == 2
    assert story.checker.records_read == 3


def test_answers_to_overlapping_requests_may_be_older() -> None:
    story = _Story()
    story.asked(end=3, asked=0.0, answered=1.0)
    story.asked(end=2, asked=1.0, answered=2.0)
    assert story.kinds([0, 1, 2]) == set()


def test_a_record_without_an_ack_may_be_there_or_not() -> None:
    assert _Story().kinds([]) == set()
    assert _Story().kinds([0, 2]) == set()


def test_a_retried_record_may_be_duplicated() -> None:
    story = _Story(REPEATED)
    story.acked(0, 1)
    story.acked(1, 2)
    assert story.kinds([0, 0, 1]) == set()


def test_retries_of_several_requests_may_swap_records() -> None:
    story = _Story(UNORDERED)
    story.acked(0, 1)
    story.acked(1, 0)
    assert story.kinds([1, 0]) == set()


def test_records_acked_from_a_buffer_may_be_lost_and_their_offsets_used_again() -> None:
    story = _Story(LEADER)
    story.acked(0, 0)
    story.acked(1, 0)
    assert story.kinds([1]) == set()


def test_records_below_an_allowed_log_start_may_be_missing() -> None:
    story = _Story()
    for number in range(3):
        story.acked(number, number)
    story.read(0, 0)
    story.checker.may_start(LOG, 2)
    story.asked(start=2, asked=1.0, answered=2.0)
    story.checker.moved("r", LOG, 2)
    story.read(2, 2)
    assert story.kinds([2], start=2) == set()


def _ack_lost(story: _Story) -> Iterable[int]:
    story.acked(0, 0)
    return []


def _ack_of_what_another_has(story: _Story) -> Iterable[int]:
    story.acked(1, 0)
    return [0]


def _ack_elsewhere(story: _Story) -> Iterable[int]:
    story.acked(0, 1)
    return [0]


def _read_then_acked_elsewhere(story: _Story) -> Iterable[int]:
    story.read(0, 0)
    story.acked(0, 1)
    return [0]


def _two_acks_of_one_offset(story: _Story) -> Iterable[int]:
    story.acked(0, 0)
    story.acked(1, 0)
    return [0]


def _two_offsets_for_one_record(story: _Story) -> Iterable[int]:
    story.acked(0, 0)
    story.acked(0, 1)
    return [0]


def _two_reads_of_one_offset(story: _Story) -> Iterable[int]:
    story.read(0, 0, "one")
    story.read(0, 1, "two")
    return [0]


def _read_and_gone(story: _Story) -> Iterable[int]:
    story.read(0, 0)
    return []


def _twice(story: _Story) -> Iterable[int]:
    return [0, 0]


def _swapped(story: _Story) -> Iterable[int]:
    return [1, 0]


def _swapped_as_seen(story: _Story) -> Iterable[int]:
    story.acked(1, 0)
    story.acked(0, 1)
    return [1, 0]


def _reader_skips(story: _Story) -> Iterable[int]:
    story.read(0, 0)
    story.read(2, 2)
    return [0, 1, 2]


def _of_nobody(story: _Story) -> Iterable[int]:
    return [7]


def _end_goes_back(story: _Story) -> Iterable[int]:
    story.asked(end=3, asked=0.0, answered=1.0)
    story.asked(end=2, asked=1.5, answered=2.0)
    return [0, 1, 2]


def _end_does_not_cover_an_ack(story: _Story) -> Iterable[int]:
    story.acked(0, 0, now=1.0)
    story.asked(end=0, asked=2.0, answered=3.0)
    return [0]


def _end_is_short(story: _Story) -> Iterable[int]:
    story.asked(end=3, asked=0.0, answered=1.0)
    return [0, 1]


def _start_goes_back(story: _Story) -> Iterable[int]:
    story.checker.may_start(LOG, 1)
    story.asked(start=1, asked=0.0, answered=1.0)
    story.asked(start=0, asked=1.5, answered=2.0)
    return [0]


def _start_by_itself(story: _Story) -> Iterable[int]:
    story.asked(start=1, asked=0.0, answered=1.0)
    return [0]


@pytest.mark.parametrize(
    ("tell", "kinds"),
    [
        (_ack_lost, {"lost", "went-back"}),
        (_ack_of_what_another_has, {"lost"}),
        (_ack_elsewhere, {"lost", "elsewhere", "went-back"}),
        (_read_then_acked_elsewhere, {"lost", "elsewhere", "went-back"}),
        (_two_acks_of_one_offset, {"offset-twice", "lost"}),
        (_two_offsets_for_one_record, {"acked-twice", "elsewhere", "lost", "went-back", "reordered"}),
        (_two_reads_of_one_offset, {"changed"}),
        (_read_and_gone, {"vanished"}),
        (_twice, {"doubled"}),
        (_swapped, {"reordered"}),
        (_swapped_as_seen, {"reordered"}),
        (_reader_skips, {"gap"}),
        (_of_nobody, {"unknown"}),
        (_end_goes_back, {"went-back"}),
        (_end_does_not_cover_an_ack, {"went-back"}),
        (_end_is_short, {"went-back"}),
        (_start_goes_back, {"went-back", "start-too-high"}),
        (_start_by_itself, {"start-too-high", "went-back"}),
    ],
)
def test_a_bad_history_causes_complaints_of_these_kinds(
    tell: Callable[[_Story], Iterable[int]], kinds: set[str]
) -> None:
    story = _Story()
    final = tell(story)
    found = story.kinds(final)
    assert found
    assert found <= kinds


@pytest.mark.parametrize("promise", [REPEATED, UNREPEATED])
def test_acks_out_of_the_order_of_sending_cause_a_complaint(promise: Promise) -> None:
    story = _Story(promise)
    story.acked(1, 0)
    story.acked(0, 1)
    assert story.kinds([1, 0]) == {"reordered"}


def test_the_log_start_does_not_excuse_a_missing_record_above_it() -> None:
    story = _Story()
    story.acked(2, 2)
    story.checker.may_start(LOG, 2)
    assert "lost" in story.kinds([], start=2, end=2)


def test_holes_at_the_end_of_a_log_cause_a_complaint() -> None:
    assert _Story().kinds([0], end=2) == {"gap"}


def test_a_record_acked_without_an_offset_must_stay() -> None:
    story = _Story()
    story.acked(0, -1)
    assert story.kinds([]) == {"lost"}
    story = _Story()
    story.acked(0, -1)
    assert story.kinds([0]) == set()


def _sink_story(start_seen: int) -> _Story:
    """Record 1 was acked without an offset after the log was known to end at ``start_seen``."""
    story = _Story(records=1)
    story.asked(end=start_seen, asked=0.0, answered=1.0)
    story.checker.sent("s", LOG, _value(1), IDEMPOTENT)
    story.acked(1, -1)
    return story


def test_the_log_start_excuses_a_missing_record_only_if_that_can_have_been_below_it() -> None:
    story = _sink_story(start_seen=2)
    story.checker.asks_start(LOG, 2)
    assert story.kinds([], start=2) == {"lost"}
    story = _sink_story(start_seen=2)
    story.checker.asks_start(LOG, 3)
    assert story.kinds([], start=3) == set()


def test_a_missing_record_needs_a_free_offset_below_the_log_start() -> None:
    story = _Story(records=3)
    story.checker.sent("s", LOG, b"s/1", IDEMPOTENT)
    for number in range(3):
        story.acked(number, number)
    story.checker.acked(LOG, b"s/1", -1, now=0.0)
    story.checker.asks_start(LOG, 3)
    assert story.kinds([], start=3) == {"lost"}


def test_a_missing_record_is_after_earlier_records_of_its_producer() -> None:
    story = _Story(records=2)
    story.acked(0, -1)
    story.acked(1, -1)
    story.checker.asks_start(LOG, 4)
    story.read(4, 0)
    assert story.kinds([0], start=4) == {"lost"}


def test_a_request_for_a_log_start_allows_only_that_start() -> None:
    story = _Story()
    story.checker.asks_start(LOG, 2)
    story.asked(start=1, asked=0.0, answered=1.0)
    assert {violation.kind for violation in story.checker.violations} == {"start-too-high"}


def test_a_refused_request_for_a_log_start_allows_nothing() -> None:
    story = _Story()
    story.checker.asks_start(LOG, 2)
    story.checker.start_refused(LOG, 2)
    story.asked(start=2, asked=0.0, answered=1.0)
    assert {violation.kind for violation in story.checker.violations} == {"start-too-high"}


@pytest.mark.parametrize(("start", "kinds"), [(2, {"start-too-high"}), (3, set()), (5, set()), (6, {"start-too-high"})])
def test_retention_continues_from_a_requested_log_start(start: int, kinds: set[str]) -> None:
    story = _Story()
    story.checker.asks_start(LOG, 3)
    story.checker.may_start(LOG, 1)
    story.checker.may_start(LOG, 5, above=3)
    story.asked(start=start, asked=0.0, answered=1.0)
    assert {violation.kind for violation in story.checker.violations} == kinds


def test_a_record_below_an_earlier_high_watermark_causes_a_complaint() -> None:
    story = _sink_story(start_seen=2)
    story.read(1, 1)
    assert {violation.kind for violation in story.checker.violations} == {"too-low"}


def test_a_deleted_log_is_judged_by_what_clients_saw() -> None:
    story = _Story()
    story.acked(0, 0)
    story.read(0, 1)
    assert {violation.kind for violation in story.checker.violations} == {"lost"}
    story = _Story()
    story.acked(1, 0)
    story.acked(0, 1)
    story.checker.gone(LOG)
    assert {violation.kind for violation in story.checker.violations} == {"reordered"}


def test_an_answer_may_leave_out_only_records_below_the_log_start() -> None:
    story = _Story()
    story.checker.asks_start(LOG, 2)
    story.checker.leaves_out(LOG, 1, "a plan passes over 1")
    assert story.kinds([0, 1, 2]) == {"left-out"}
    story = _Story()
    story.checker.asks_start(LOG, 2)
    story.checker.leaves_out(LOG, 1, "a plan passes over 1")
    assert story.kinds([2], start=2) == set()


def test_a_later_deletion_does_not_excuse_a_record_left_out() -> None:
    story = _Story()
    story.checker.leaves_out(LOG, 1, "a plan passes over 1")
    story.checker.asks_start(LOG, 2)
    assert story.kinds([2], start=2) == {"left-out"}


@pytest.mark.parametrize(
    ("told", "kinds"),
    [((1, 2, 3), set()), ((1, 3, 3), {"epochs"}), ((1, 1, 3), {"epochs"}), ((1, 1, 1), set()), ((4, 3, 3), set())],
)
def test_an_epoch_ends_with_its_records(told: tuple[int, int, int], kinds: set[str]) -> None:
    story = _Story()
    for offset, epoch in enumerate((1, 1, 4)):
        story.checker.epoch(LOG, offset, epoch)
    story.checker.epoch_ends(LOG, *told)
    assert story.kinds([0, 1, 2]) == kinds


def test_an_epoch_without_records_ends_at_the_log_start() -> None:
    story = _Story()
    for offset, epoch in enumerate((1, 4, 4)):
        story.checker.epoch(LOG, offset, epoch)
    story.checker.asks_start(LOG, 2)
    story.checker.epoch_ends(LOG, 1, 2, 3)
    assert story.kinds([2], start=2) == set()


def test_an_epoch_without_records_ends_where_the_first_known_epoch_begins() -> None:
    story = _Story()
    for offset, epoch in enumerate((2, 4, 4)):
        story.checker.epoch(LOG, offset, epoch)
    story.checker.asks_start(LOG, 2)
    story.checker.epoch_ends(LOG, 1, 1, 3)
    assert story.kinds([2], start=2) == set()


def test_leader_epochs_that_fall_or_change_cause_a_complaint() -> None:
    story = _Story()
    story.checker.epoch(LOG, 0, 4)
    story.checker.epoch(LOG, 1, 3)
    assert story.kinds([0, 1]) == {"epochs"}
    story = _Story()
    story.checker.epoch(LOG, 0, 4)
    story.checker.epoch(LOG, 0, 3)
    assert story.kinds([0]) == {"changed"}


def test_a_value_cannot_be_sent_as_new_twice() -> None:
    story = _Story()
    with pytest.raises(ValueError, match="twice"):
        story.checker.sent("p", LOG, _value(0), IDEMPOTENT)
