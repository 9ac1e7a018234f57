"""Members of a group, with every client's defaults: they share partitions, continue, seek and pause."""

import pytest

from tests.support.clients import ASSIGNORS
from tests.support.clients.compaction import compacted_log
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import MatrixClient, Received, Record
from tests.support.members import EACH, PARTITIONS, fill, joined, quiet, read, until

EVERYTHING = set(range(PARTITIONS))


def _share(driver: MatrixClient, judge: ConfluentClient, topic: str, *, assignor: str | None = None) -> None:
    """One member reads all records, a second gets half of the partitions, and leaves them to the first again."""
    group = f"{topic}-group"
    quick = assignor is not None
    produced = fill(judge, topic)
    got: list[Record] = []

    def all_read(more: list[Record]) -> bool:
        return {record.value for record in [*got, *more]} >= produced

    with joined(driver.member(topic, group, assignor=assignor, quick=quick)) as first:
        got += until(lambda more: first.assigned() == EVERYTHING and all_read(more), first)
        with joined(driver.member(topic, group, assignor=assignor, quick=quick)) as second:

            def divided(_: list[Record]) -> bool:
                parts = first.assigned(), second.assigned()
                return all(len(part) == PARTITIONS // 2 for part in parts) and set.union(*parts) == EVERYTHING

            got += until(divided, first, second)
            if assignor is not None:
                assert judge.assignor_of(group) == driver.assignors[assignor]
            produced |= fill(judge, topic, EACH)
            got += until(all_read, first, second)
        got += until(lambda _: first.assigned() == EVERYTHING, first)
        produced |= fill(judge, topic, 2 * EACH)
        got += until(all_read, first)
        # A client may commit the records of a poll with the next one.
        first.poll(0.1)
    assert {(record.partition, record.offset) for record in got} == {
        (partition, offset) for partition in EVERYTHING for offset in range(3 * EACH)
    }
    assert judge.committed(group, topic) == dict.fromkeys(EVERYTHING, 3 * EACH)


def test_two_members_share_partitions_and_one_takes_over(
    driver: MatrixClient, judge: ConfluentClient, topic: str
) -> None:
    _share(driver, judge, topic)


@pytest.mark.parametrize(("driver", "assignor"), ASSIGNORS, indirect=["driver"])
def test_members_share_by_each_assignor(
    driver: MatrixClient, judge: ConfluentClient, topic: str, assignor: str
) -> None:
    _share(driver, judge, topic, assignor=assignor)


def test_a_later_member_continues_where_the_group_stopped(
    driver: MatrixClient, judge: ConfluentClient, topic: str
) -> None:
    group = f"{topic}-group"
    fill(judge, topic)
    with joined(driver.member(topic, group, quick=True)) as member:
        got = read(PARTITIONS * EACH, member)
        assert member.poll(0.1) == []
    fill(judge, topic, EACH)
    with joined(driver.member(topic, group, quick=True)) as later:
        got += read(PARTITIONS * EACH, later)
        assert quiet(later) == []
    assert sorted(got) == [Record(p, at, f"{p}:{at}") for p in sorted(EVERYTHING) for at in range(2 * EACH)]


@pytest.mark.uses("commit")
def test_the_next_member_starts_at_the_committed_offsets(
    driver: MatrixClient, judge: ConfluentClient, topic: str
) -> None:
    group = f"{topic}-group"
    committed = {0: 4, 1: EACH, 2: EACH, 3: 7}
    fill(judge, topic)
    with joined(driver.member(topic, group, auto_commit=False, quick=True)) as member:
        read(PARTITIONS * EACH, member)
        member.commit(committed)
        assert judge.committed(group, topic) == committed
    assert driver.committed(group, topic) == committed
    left = [Record(p, at, f"{p}:{at}") for p, begin in committed.items() for at in range(begin, EACH)]
    with joined(driver.member(topic, group, auto_commit=False, quick=True)) as later:
        assert sorted(read(len(left), later)) == left
        assert quiet(later) == []


@pytest.mark.uses("seek")
def test_a_member_seeks_backward_and_forward(driver: MatrixClient, judge: ConfluentClient, topic: str) -> None:
    fill(judge, topic)
    with joined(driver.member(topic, f"{topic}-group", quick=True)) as member:
        read(PARTITIONS * EACH, member)
        for begin in (3, 8, 0):
            member.seek(1, begin)
            wanted = [Record(1, offset, f"1:{offset}") for offset in range(begin, EACH)]
            assert read(len(wanted), member) == wanted
        assert quiet(member) == []


@pytest.mark.uses("pause", "resume")
def test_a_paused_partition_returns_no_records_until_it_is_resumed(
    driver: MatrixClient, judge: ConfluentClient, topic: str
) -> None:
    fill(judge, topic)
    with joined(driver.member(topic, f"{topic}-group", quick=True)) as member:
        read(PARTITIONS * EACH, member)
        member.pause(2)
        fill(judge, topic, EACH)
        got = read((PARTITIONS - 1) * EACH, member)
        got += quiet(member)
        assert {record.partition for record in got} == EVERYTHING - {2}
        member.resume(2)
        held = read(EACH, member)
    assert held == [Record(2, EACH + number, f"2:{EACH + number}") for number in range(EACH)]


@pytest.fixture(scope="session")
def left(bootstrap: str) -> list[Received]:
    """The records that are left in the topic ``matrix-compacted``."""
    return compacted_log(bootstrap, "matrix-compacted")


def test_a_member_reads_what_compaction_left(driver: MatrixClient, left: list[Received]) -> None:
    with joined(driver.member("matrix-compacted", f"{driver.name}-compacted")) as member:
        got = read(4, member)
    assert [(one.offset, one.value) for one in got[:3]] == [
        (one.offset, (one.value or b"").decode()) for one in left[:3]
    ]
