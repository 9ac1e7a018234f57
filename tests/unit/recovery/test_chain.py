"""The log of a partition told by its objects alone."""

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


def test_a_log_without_objects_is_empty_where_it_was_known_to_end() -> None:
    assert log_of() == Chain(0, 0, (), (), 0)
    assert log_of(log_start=7, proven_end=12) == Chain(12, 12, (), (), 0)


def test_segments_of_several_owners_are_one_chain_with_their_history() -> None:
    found = [seg(0, 10, 1), seg(10, 15, 1), seg(15, 20, 3), seg(20, 21, 4)]
    chain = log_of(*found)
    assert (chain.start, chain.end, chain.segments, chain.last) == (0, 21, tuple(found), found[-1])
    assert chain.history() == [(1, 0), (3, 15), (4, 20)]


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        # Behind the last object that is there nothing was acked.
        ([seg(12, 14, 1)], []),
        # What a dead owner left, where its successor went on with other records.
        ([seg(10, 12, 2), seg(12, 14, 1)], [seg(10, 12, 2)]),
        ([seg(10, 11, 2), seg(11, 20, 1), seg(20, 30, 1)], [seg(10, 11, 2)]),
        # It reaches over the first object of its successor, whose own first object is missing.
        ([seg(10, 20, 1), seg(15, 18, 2)], []),
        # A put of a stopped process that landed late, among what was committed since.
        ([seg(10, 20, 3), seg(14, 16, 1), seg(20, 22, 3)], [seg(10, 20, 3), seg(20, 22, 3)]),
        # Not committed, perhaps: nothing else is in its place.
        ([seg(10, 12, 1), seg(12, 13, 1)], [seg(10, 12, 1), seg(12, 13, 1)]),
    ],
)
def test_what_was_never_acked_takes_the_place_of_nothing_that_was(rest: list[Found], kept: list[Found]) -> None:
    chain = log_of(seg(0, 10, 1), *rest)
    assert chain.segments == (seg(0, 10, 1), *kept)
    assert chain.holes == ()


def test_a_deleted_topics_objects_are_none_of_its_successors() -> None:
    chain = log_of(seg(0, 10, 4), seg(10, 30, 5), seg(0, 5, 6)._replace(base=0), floor=5)
    assert chain.segments == (seg(0, 5, 6),)


def test_imported_segments_may_lack_offsets_between_them() -> None:
    chain = log_of(seg(3, 10, 0), seg(15, 20, 0), seg(20, 30, 1))
    assert (chain.start, chain.end, len(chain.segments), chain.holes) == (3, 30, 3, ())


def test_the_log_begins_at_its_start_or_at_the_oldest_object_that_is_left() -> None:
    found = [seg(0, 10, 1), seg(10, 20, 1), seg(20, 30, 1)]
    assert (log_of(*found, log_start=12).start, log_of(*found, log_start=12).segments) == (12, tuple(found[1:]))
    assert log_of(*found[2:], log_start=12).start == 20


def test_a_missing_object_is_a_hole_where_more_was_committed_behind_it() -> None:
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
        # Few segments of one epoch follow, which would be no log's behind a missing object.
        ([seg(0, 10, 1), seg(15, 16, 1), seg(16, 17, 1)], [10], 0, 17, [Hole(10, 15)]),
        ([seg(0, 10, 1), seg(15, 16, 1), seg(18, 20, 1)], [10, 16], 0, 20, [Hole(10, 15), Hole(16, 18)]),
        ([seg(0, 10, 1), seg(15, 16, 1)], [10, 12], 0, 16, [Hole(10, 15)]),
        # Nothing follows: the name is not given again.
        ([seg(0, 10, 1)], [10], 0, 11, [Hole(10, 11)]),
        ([], [4], 4, 5, [Hole(4, 5)]),
        # Neither does the log begin behind it.
        ([seg(10, 20, 1)], [0], 0, 20, [Hole(0, 10)]),
        # Whose it was is not known: behind a missing object it may be of what was committed.
        ([seg(0, 10, 1), seg(15, 16, 1)], [12], 0, 16, [Hole(10, 15)]),
        # All of its offsets can be read.
        ([seg(0, 10, 3), seg(12, 13, 3)], [5], 0, 10, []),
    ],
)
def test_behind_an_object_that_cannot_be_read_the_log_goes_on(
    found: list[Found], unreadable: list[int], start: int, end: int, holes: list[Hole]
) -> None:
    chain = log_of(*found, unreadable=unreadable)
    assert (chain.start, chain.end, chain.holes) == (start, end, tuple(holes))
    assert chain.unreadable == tuple(unreadable)


def test_of_what_cannot_be_read_all_that_reaches_over_the_logs_start_is_told() -> None:
    chain = log_of(seg(0, 5, 1), seg(20, 30, 1), unreadable=[5, 10, 25], log_start=12)
    assert (chain.start, chain.end, chain.holes, chain.unreadable) == (12, 30, (Hole(12, 20),), (10, 25))
    assert log_of(seg(12, 30, 1), unreadable=[5], log_start=12) == log_of(seg(12, 30, 1), log_start=12)


@pytest.mark.parametrize("seed", range(40))
def test_owners_that_die_at_any_time_leave_all_that_was_acked_and_nothing_else_in_its_place(seed: int) -> None:
    """Owners put up to eight segments in any order, commit in order, and die; late puts fill absent names."""
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
