"""The cost of groups in a coordinator without network and store: `python -m tests.bench.group_cost`.

It measures the memory of idle groups with three members, their assignments and twelve offsets, and the CPU time of a
rebalance in which every member rejoins and syncs, including the serialization of persisted values.
"""

import gc
import time
import tracemalloc
from struct import pack

import click

from kafscale.v1 import coordinator_pb2 as pb
from services.coordinator.effects import Effects, Now, Timer, TimerKind
from services.coordinator.groups import Groups
from services.coordinator.limits import GroupLimits
from services.coordinator.table import State

_LIMITS = GroupLimits(initial_rebalance_delay_ms=0)
_NOW = Now(0, 1_700_000_000_000)
_SUBSCRIPTION = pack(">hi", 1, 1) + pack(">h", 6) + b"orders" + pack(">ii", -1, 0)
_ASSIGNMENT = bytes(60)


class _Group:
    """A group, and the number of bytes and transaction operations that it has written."""

    def __init__(self, groups: Groups, name: str) -> None:
        self._groups = groups
        self._name = name
        self.bytes = 0
        self.operations = 0

    def rebalance(self, members: list[str], generation: int) -> list[str]:
        """Let all members join and sync. An empty id is a new member."""
        member_ids: list[str] = []
        for number, member_id in enumerate(members):
            effects = self._groups.join(self._join(member_id), number, _NOW, fresh_id=f"{number:036}")
            member_ids += self._done(effects)
        while self._groups[self._name].state is State.PREPARING:
            member_ids += self._done(self._groups.expire(self._name, Timer(TimerKind.JOIN), _NOW))
        assignments = [pb.MemberAssignment(member_id=member, assignment=_ASSIGNMENT) for member in member_ids]
        leader = self._groups[self._name].leader
        for number, member_id in enumerate(member_ids):
            request = pb.SyncGroupRequest(group=self._name, member_id=member_id, generation=generation)
            if member_id == leader:
                request.assignments.extend(assignments)
            self._done(self._groups.sync(request, number, _NOW))
        return member_ids

    def commit(self, member_id: str, partitions: int) -> None:
        request = pb.OffsetCommitRequest(group=self._name, member_id=member_id, generation=1, retention_ms=-1)
        for partition in range(partitions):
            request.offsets.add(topic="orders", partition=partition, offset=1_000_000, leader_epoch=1)
        self._done(self._groups.commit(request, 0, _NOW))

    def _join(self, member_id: str) -> pb.JoinGroupRequest:
        return pb.JoinGroupRequest(
            group=self._name,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[pb.GroupProtocol(name=name, metadata=_SUBSCRIPTION) for name in ("range", "cooperative-sticky")],
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            client_id="rdkafka",
            client_host="/10.0.0.1",
        )

    def _done(self, effects: Effects) -> list[str]:
        """Serialize all effects. Return the member ids in the replies."""
        for record in [*effects.stage, *effects.commit]:
            self.bytes += len(record.value.SerializeToString()) if record.value is not None else 0
        self.operations += len(effects.stage) + len(effects.commit) + len(effects.sweep)
        replies = [reply.message for reply in effects.replies]
        for message in replies:
            message.SerializeToString()
        return [message.member_id for message in replies if isinstance(message, pb.JoinGroupReply)]


def _memory(count: int) -> None:
    gc.collect()
    tracemalloc.start()
    groups = Groups("default", _LIMITS, 1)
    for number in range(count):
        group = _Group(groups, f"group-{number}")
        group.commit(group.rebalance([""] * 3, 1)[0], 12)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    click.echo(f"{count} idle groups of 3 members and 12 offsets: {used / 1e6:.0f} MB, {used / count:.0f} bytes each")


def _rebalances(members: int) -> None:
    groups = Groups("default", _LIMITS, 1)
    group = _Group(groups, "group")
    ids = [""] * members
    for generation, what in ((1, "first"), (2, "next")):
        group.bytes = group.operations = 0
        started = time.process_time()
        ids = group.rebalance(ids, generation)
        ms = (time.process_time() - started) * 1000
        click.echo(
            f"{members} members, {what} generation: {ms:.1f} ms of CPU, {group.operations} values, {group.bytes} bytes"
        )


@click.command()
@click.option("--groups", default=10_000, show_default=True)
def main(groups: int) -> None:
    """Print the measurements."""
    _memory(groups)
    for members in (10, 100, 1000):
        _rebalances(members)


if __name__ == "__main__":
    main()
