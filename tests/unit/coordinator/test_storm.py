"""A group in trouble: coordinators die, pause and come back, and the store answers late, not at all, or with errors.

Committed offsets never go back, no two members own a partition in one generation, and no two coordinators answer for
the group at the same time.
"""

from random import Random

import pytest
import trio

from kafscale import paths
from kafscale.metadata.memory import Fault, MemoryMetadataStore, lost_answer, no_answer
from kafscale.v1 import coordinator_pb2 as pb
from tests.support.coordinator.harness import E
from tests.support.coordinator.shell import NAMESPACE, RETRIABLE, TIMEOUT, Consumer, Coordinators, coordinators
from tests.support.scheduling import run

SECONDS = 120
MEMBERS = 3
PREFIX = paths.GroupKeys(NAMESPACE, "g").prefix


class Ledger:
    """Sent and acknowledged offsets by partition, and the owner of each partition in each generation."""

    def __init__(self) -> None:
        self.sent = dict.fromkeys(range(MEMBERS), 0)
        self.acked = dict.fromkeys(range(MEMBERS), 0)
        self.read = dict.fromkeys(range(MEMBERS), 0)
        self.owners: dict[tuple[int, bytes], str] = {}
        self.answers = 0

    def owns(self, member: Consumer) -> int:
        owner = self.owners.setdefault((member.generation, member.assignment), member.member_id)
        assert owner == member.member_id, f"two members own {member.assignment!r} in generation {member.generation}"
        return int(member.assignment.removeprefix(b"p"))


async def _live(member: Consumer, ledger: Ledger, random: Random) -> None:
    """Commit offsets in order as a member with heartbeats, rejoin on errors, and pause now and then."""
    while True:
        await member.join(session_timeout_ms=10_000, rebalance_timeout_ms=15_000)
        partition = ledger.owns(member)
        error: int = E.NONE
        while error == E.NONE:
            await trio.sleep(random.uniform(0.2, 2) if random.random() < 0.9 else random.uniform(5, 25))
            offset = ledger.sent[partition] = ledger.sent[partition] + 1
            reply = await member.coordinators.commit({partition: offset}, "g", member.member_id, member.generation)
            error = reply.error or await member.beat()
            if reply.error == E.NONE:
                ledger.acked[partition] = max(ledger.acked[partition], offset)
        if error != E.REBALANCE_IN_PROGRESS:
            member.member_id = ""


async def _read(made: Coordinators, ledger: Ledger, random: Random) -> None:
    while True:
        await trio.sleep(random.uniform(0.1, 1))
        least = {partition: max(ledger.acked[partition], ledger.read[partition]) for partition in ledger.acked}
        found = await made.offsets()
        for partition, offset in least.items():
            assert found.get(partition, 0) >= offset, f"partition {partition} went back below {offset}: {found}"
        ledger.read |= found


async def _ask_all(made: Coordinators, ledger: Ledger, random: Random) -> None:
    """Check that at most one coordinator answers. Heartbeats are answered from memory, so a stale one could."""
    while True:
        await trio.sleep(random.uniform(0.1, 1))
        request = pb.HeartbeatRequest(heartbeats=[pb.MemberHeartbeat(group="g", member_id="nobody", generation=1)])
        replies = [await instance.client.heartbeat(request, timeout=TIMEOUT) for instance in list(made.instances)]
        answering = sum(reply.results[0].error not in RETRIABLE for reply in replies)
        assert answering <= 1, f"{answering} coordinators answer"
        ledger.answers += answering


async def _trouble(made: Coordinators, store: MemoryMetadataStore, random: Random) -> None:
    for number in range(10_000):
        await trio.sleep(random.uniform(1, 8))
        instance = random.choice(made.instances)
        match random.choice(("kill", "pause", "slow", "lost", "none")):
            case "kill":
                await made.start(f"new{number}:1")
                await instance.kill()
            case "pause":
                instance.gate.shut()
                await trio.sleep(random.uniform(1, 20))
                instance.gate.open()
            case "slow":
                store.faults.append(Fault(method="txn", key=PREFIX, delay=random.uniform(0.1, 8)))
            case "lost":
                store.faults.append(lost_answer(key=PREFIX))
            case "none":
                store.faults.append(no_answer("txn", key=PREFIX))


@pytest.mark.parametrize("seed", range(3))
def test_a_group_in_trouble_loses_no_commit_and_has_one_coordinator(seed: int) -> None:
    ledger = run(seed, lambda: _storm(Random(seed)))
    assert min(ledger.acked.values()) >= 3
    assert len({generation for generation, _ in ledger.owners}) >= 2
    assert ledger.answers >= 20


async def _storm(random: Random) -> Ledger:
    store, ledger = MemoryMetadataStore(), Ledger()
    async with coordinators(store, "a:1", "b:1", "c:1") as made:
        members = [Consumer(made, f"c{number}") for number in range(MEMBERS)]
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(_live, member, ledger, random)
            nursery.start_soon(_read, made, ledger, random)
            nursery.start_soon(_ask_all, made, ledger, random)
            await trio.sleep(10)
            nursery.start_soon(_trouble, made, store, random)
            await trio.sleep(SECONDS)
            nursery.cancel_scope.cancel()
    return ledger
