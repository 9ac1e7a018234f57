"""The log of a partition is derived from its objects alone."""

from collections.abc import Sequence
from random import Random

import pytest

from kafscale_tools.recovery.chain import Chain, Found, Hole, chain_of

IN_FLIGHT = 8


def seg(base: int, following: int, epoch: int) -> Found:
    return Found(base, following, epoch, size=100, crc=base, created_ms=0)


def log_of(
    *found: Found, unreadable: Sequence[int] = (), log_start: int = 0, floor: int = 0, proven_end: int = 0
) -> Chain:
    return chain_of(
        sorted(found),
        unreadable=unreadable,
        log_start=log_start,
        floor=floor,
        proven_end=proven_end,
        in_flight=IN_FLIGHT,
    )


def test_a_log_without_objects_is_empty_at_its_known_end() -> None:
    assert log_of() == Chain(0, 0, (), (), 0)
    assert log_of(log_start=7, proven_end=12) == Chain(12, 12, (), (), 0)


def test_segments_of_several_owners_form_one_chain_with_their_history() -> None:
    found = [seg(0, 10, 1), seg(10, 15, 1), seg(15, 20, 3), seg(20, 21, 4)]
    chain = log_of(*found)
    assert (chain.start, chain.end, chain.segments, chain.last) == (0, 21, tuple(found), found[-1])
    assert chain.history() == [(1, 0), (3, 15), (4, 20)]


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        # Nothing after the last existing object was acked.
        ([seg(12, 14, 1)], []),
        # A dead owner left these, and its successor continued with other records.
        ([seg(10, 12, 2), seg(12, 14, 1)], [seg(10, 12, 2)]),
        ([seg(10, 11, 2), seg(11, 20, 1), seg(20, 30, 1)], [seg(10, 11, 2)]),
        # It overlaps the first object of its successor, whose own first object is missing.
        ([seg(10, 20, 1), seg(15, 18, 2)], []),
        # A late put of a stopped process, among later committed objects.
        ([seg(10, 20, 3), seg(14, 16, 1), seg(20, 22, 3)], [seg(10, 20, 3), seg(20, 22, 3)]),
        # Possibly not committed, but nothing else is in its place.
        ([seg(10, 12, 1), seg(12, 13, 1)], [seg(10, 12, 1), seg(12, 13, 1)]),
    ],
)
def test_unacked_objects_never_replace_acked_ones(rest: list[Found], kept: list[Found]) -> None:
    chain = log_of(seg(0, 10, 1), *rest)
    assert chain.segments == (seg(0, 10, 1), *kept)
    assert chain.holes == ()


def test_objects_of_a_deleted_topic_do_not_belong_to_its_successor() -> None:
    chain = log_of(seg(0, 10, 4), seg(10, 30, 5), seg(0, 5, 6)._replace(base=0), floor=5)
    assert chain.segments == (seg(0, 5, 6),)


def test_imported_segments_may_have_gaps_between_them() -> None:
    chain = log_of(seg(3, 10, 0), seg(15, 20, 0), seg(20, 30, 1))
    assert (chain.start, chain.end, len(chain.segments), chain.holes) == (3, 30, 3, ())


def test_the_log_begins_at_its_start_or_at_its_oldest_object() -> None:
    found = [seg(0, 10, 1), seg(10, 20, 1), seg(20, 30, 1)]
    assert (log_of(*found, log_start=12).start, log_of(*found, log_start=12).segments) == (12, tuple(found[1:]))
    assert log_of(*found[2:], log_start=12).start == 20


def test_a_missing_object_is_a_hole_if_more_was_committed_after_it() -> None:
    behind = [seg(20 + n, 21 + n, 1) for n in range(IN_FLIGHT)]
    assert log_of(seg(0, 10, 1), *behind).end == 10
    assert log_of(seg(0, 10, 1), *behind).above == IN_FLIGHT
    proven = log_of(seg(0, 10, 1), *behind, proven_end=21)
    assert (proven.end, proven.holes, proven.above) == (28, (Hole(10, 20),), 0)
    more = log_of(seg(0, 10, 1), *behind, seg(28, 29, 1))
    assert (more.end, more.holes) == (29, (Hole(10, 20),))
    cut = log_of(seg(0, 10, 1), proven_end=12)
    assert (cut.end, cut.holes, cut.last) == (12, (Hole(10, 12),), None)


@pytest.mark.parametrize(
    ("found", "unreadable", "start", "end", "holes"),
    [
        # The few segments of one epoch after it cannot belong to the log if an object is missing.
        ([seg(0, 10, 1), seg(15, 16, 1), seg(16, 17, 1)], [10], 0, 17, [Hole(10, 15)]),
        ([seg(0, 10, 1), seg(15, 16, 1), seg(18, 20, 1)], [10, 16], 0, 20, [Hole(10, 15), Hole(16, 18)]),
        ([seg(0, 10, 1), seg(15, 16, 1)], [10, 12], 0, 16, [Hole(10, 15)]),
        # Nothing follows, but the name cannot be used again.
        ([seg(0, 10, 1)], [10], 0, 11, [Hole(10, 11)]),
        ([], [4], 4, 5, [Hole(4, 5)]),
        # The log does not begin after it either.
        ([seg(10, 20, 1)], [0], 0, 20, [Hole(0, 10)]),
        # Its epoch is unknown, so the segment after the gap may be committed.
        ([seg(0, 10, 1), seg(15, 16, 1)], [12], 0, 16, [Hole(10, 15)]),
        # All offsets of the log are readable.
        ([seg(0, 10, 3), seg(12, 13, 3)], [5], 0, 10, []),
    ],
)
def test_the_log_continues_after_an_unreadable_object(
    found: list[Found], unreadable: list[int], start: int, end: int, holes: list[Hole]
) -> None:
    chain = log_of(*found, unreadable=unreadable)
    assert (chain.start, chain.end, chain.holes) == (start, end, tuple(holes))
    assert chain.unreadable == tuple(unreadable)


def test_unreadable_objects_at_or_above_the_log_start_are_reported() -> None:
    chain = log_of(seg(0, 5, 1), seg(20, 30, 1), unreadable=[5, 10, 25], log_start=12)
    assert (chain.start, chain.end, chain.holes, chain.unreadable) == (12, 30, (Hole(12, 20),), (10, 25))
    assert log_of(seg(12, 30, 1), unreadable=[5], log_start=12) == log_of(seg(12, 30, 1), log_start=12)


@pytest.mark.parametrize("seed", range(40))
def test_owners_that_die_at_any_time_leave_exactly_the_acked_records(seed: int) -> None:
    """Owners put up to eight segments in any order, commit in order, and die; late puts fill free names."""
    random = Random(seed)
    objects: dict[int, Found] = {}
    committed: list[Found] = []
    late: list[Found] = []
    end = 0
    for epoch in range(1, 12):
        base = end
        for _ in range(random.randrange(5)):
            sealed = []
            for _ in range(random.randint(1, IN_FLIGHT)):
                sealed.append(seg(base, base + random.randint(1, 4), epoch))
                base = sealed[-1].next
            put = [one for one in sealed if random.random() < 0.8]
            late += [one for one in sealed if one not in put and random.random() < 0.3]
            for one in put:
                assert one.base not in objects or objects[one.base].epoch < epoch
                objects[one.base] = one
            done = next((i for i, one in enumerate(sealed) if one not in put), len(sealed))
            done = done if random.random() < 0.7 else random.randint(0, done)
            committed += sealed[:done]
            end = committed[-1].next if committed else 0
            if done < len(sealed):
                break
        for one in random.sample(late, k=len(late) // 2):
            objects.setdefault(one.base, one)
    chain = log_of(*objects.values())
    assert chain.segments[: len(committed)] == tuple(committed)
    assert chain.end >= end
    assert not chain.holes
    if committed:
        bad = random.choice(committed)
        chain = log_of(*(one for one in objects.values() if one != bad), unreadable=[bad.base])
        assert chain.unreadable == (bad.base,)
        assert set(chain.segments) >= set(committed) - {bad}
