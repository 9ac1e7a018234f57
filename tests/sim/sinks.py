"""A simulated driver of an exactly-once sink, which stages, sometimes gives up, and commits until it is confirmed.

An epoch's records are reported to the checker when their first commit is sent. Records of an attempt that was given up
before count as never sent.
"""

from collections.abc import Sequence
from functools import partial

import trio

from kafscale.errors import Unavailable
from kafscale.records.record import Record, build_batch
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import CommitSinkRequest, DiscardStagesRequest, Stage, StageRequest
from tests.sim import stored
from tests.sim.process import Process
from tests.sim.services import NAMESPACE, Cluster
from tests.sim.transport import RemoteStorage
from tests.sim.view import Partition, View
from tests.support.checker import IDEMPOTENT

_CALL_SECONDS = 2.0
_WAIT_MS = 500
_RETRY_SECONDS = 0.1


class SinkWriter:
    """Writes epochs from the process ``here``, which never fails, because a checkpoint keeps its state."""

    def __init__(self, view: View, cluster: Cluster, here: Process, partitions: Sequence[Partition], name: str) -> None:
        self._view = view
        self._faults = view.faults
        self._cluster = cluster
        self._here = here
        self._partitions = partitions
        self.name = name
        self._pause = view.faults.one_of([0.1, 0.3])
        self._made = 0
        # Stages whose keys the driver does not know. They remain until they expire.
        self._unknown = 0
        self.done = False

    async def run(self) -> None:
        epoch = 0
        while self._view.producing:
            await trio.sleep(self._faults.dice.expovariate(1 / self._pause))
            while self._faults.dice.random() < 0.3:
                await self._give_up(epoch, discard=self._faults.dice.random() < 0.5)
            await self._write(epoch)
            epoch += self._faults.dice.choice([1, 1, 3])
        while not self._view.at_ease:  # noqa: ASYNC110
            await trio.sleep(0.1)
        await self._leave_nothing(epoch)
        self.done = True

    async def _leave_nothing(self, epoch: int) -> None:
        """Check that without faults all stages of an epoch are deleted after it was discarded or appended."""
        unknown = -1
        while unknown != self._unknown:
            epoch, unknown = epoch + 1, self._unknown
            while not await self._give_up(epoch, discard=True):  # noqa: ASYNC110
                await trio.sleep(_RETRY_SECONDS)
        await self._until_nothing_is_left(epoch)
        await self._write(epoch)
        if unknown == self._unknown:
            await self._until_nothing_is_left(epoch)

    async def _until_nothing_is_left(self, epoch: int) -> None:
        while await stored.staged(self._cluster.objects, NAMESPACE, self.name, epoch):  # noqa: ASYNC110
            await trio.sleep(_RETRY_SECONDS)

    async def _give_up(self, epoch: int, *, discard: bool) -> bool:
        """Stage without a commit, then discard the stages or leave them. Return whether they were discarded."""
        stages, _ = await self._stage_all(epoch)
        if not discard:
            return False
        request = DiscardStagesRequest(keys=[stage.key for stage in stages])
        try:
            await self._storage().discard_stages(request, timeout=_CALL_SECONDS)
        except Unavailable:
            return False
        return bool(stages)

    async def _write(self, epoch: int) -> None:
        stages, values = await self._stage_all(epoch)
        for partition, value in values:
            self._view.sent(self.name, partition, value, IDEMPOTENT)
        request = CommitSinkRequest(sink=self.name, epoch=epoch, stages=stages, wait_ms=_WAIT_MS)
        committed = False
        while True:
            self._view.trace(self.name, f"commits epoch {epoch}")
            try:
                reply = await self._storage().commit_sink(request, timeout=_CALL_SECONDS)
            except Unavailable:
                await trio.sleep(_RETRY_SECONDS)
                continue
            if reply.status == Status.INVALID:
                self._view.complain("refused", self._partitions[0], f"{self.name}: {reply.detail}")
            if reply.status == Status.OK and not committed:
                committed = True
                for partition, value in values:
                    self._view.acked(partition, value, -1)
            # Sometimes do not wait until the epoch is applied, except at the end.
            if committed and (reply.applied or (self._view.producing and self._faults.dice.random() < 0.5)):
                return
            await trio.sleep(_RETRY_SECONDS)

    async def _stage_all(self, epoch: int) -> tuple[list[Stage], list[tuple[Partition, bytes]]]:
        stages, all_values = [], []
        for partition in self._partitions:
            for _ in range(self._faults.dice.choice([0, 1, 1, 2])):
                batches = []
                for _ in range(self._faults.dice.choice([1, 2, 4])):
                    values = self._values(epoch)
                    all_values += [(partition, value) for value in values]
                    stamp = self._view.stamp
                    records = [Record(i, stamp(partition, value), None, value, ()) for i, value in enumerate(values)]
                    batches.append(build_batch(records, base_offset=0))
                stages.append(await self._stage(epoch, partition, b"".join(batches)))
        return stages, all_values

    def _values(self, epoch: int) -> list[bytes]:
        values = []
        for _ in range(self._faults.dice.choice([1, 3])):
            self._made += 1
            padding = b"." * self._faults.dice.choice([0, 50, 400])
            values.append(b"%s/%d.%d/%s" % (self.name.encode(), epoch, self._made, padding))
        return values

    async def _stage(self, epoch: int, partition: Partition, records: bytes) -> Stage:
        ref = PartitionRef(topic=partition.topic, topic_id=partition.topic_id, partition=partition.index)
        request = StageRequest(sink=self.name, epoch=epoch, partition=ref, records=records)
        while True:
            try:
                reply = await self._storage().stage(request, timeout=_CALL_SECONDS)
            except Unavailable:
                self._unknown += 1
                await trio.sleep(_RETRY_SECONDS)
                continue
            if reply.status == Status.OK:
                return reply.stage
            if reply.status != Status.UNAVAILABLE:
                self._view.complain("refused", partition, f"{self.name}: {reply.detail}")
            await trio.sleep(_RETRY_SECONDS)

    def _storage(self) -> SegmentStorageClient:
        """Return any instance, a different one each time."""
        address = self._faults.dice.choice(sorted(self._cluster.storages))
        there = partial(self._cluster.storages.get, address)
        return SegmentStorageClient(RemoteStorage(self._here, there, self._faults, self._cluster.trace))
