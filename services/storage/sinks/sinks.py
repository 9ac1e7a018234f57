"""Exactly-once sinks in one run of the storage service: staging, commits and appends."""

from collections.abc import Awaitable, Callable

import trio

from kafscale.metadata.membership import Membership
from kafscale.v1.storage_pb2 import (
    CommitSinkReply,
    CommitSinkRequest,
    DiscardStagesReply,
    DiscardStagesRequest,
    StageReply,
    StageRequest,
)
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.owning.owned import OwnedPartitions
from services.storage.sinks.appends import SinkAppends
from services.storage.sinks.commits import SinkCommits
from services.storage.sinks.records import SinkView
from services.storage.sinks.staging import Stages
from services.storage.sinks.upkeep import SinkUpkeep


class Sinks:
    """The parts of the sinks, which work while `run` is running. For the arguments see `SinkAppends`."""

    def __init__(
        self,
        deps: Dependencies,
        membership: Membership,
        owned: OwnedPartitions,
        *,
        nursery: trio.Nursery,
        appended: Callable[[Partition, int, int], None],
        moved: Callable[[], Awaitable[None]],
        buffered: Callable[[], int],
    ) -> None:
        self._nursery = nursery
        self._now_ms = deps.now_ms
        self.view = SinkView(deps.metadata, deps.namespace)
        self._stages = Stages(deps, membership, owned, self.view)
        self._commits = SinkCommits(deps, self._stages, self.view)
        self.appends = SinkAppends(
            deps,
            membership,
            owned,
            self.view,
            nursery=nursery,
            appended=appended,
            moved=moved,
            buffered=buffered,
        )
        self._upkeep = SinkUpkeep(deps, membership, self.view)

    async def run(self) -> None:
        self._nursery.start_soon(self.view.run)
        self._nursery.start_soon(self.appends.run)
        self._nursery.start_soon(self._upkeep.run)

    def oldest_pending_seconds(self) -> float:
        """Return the age of the oldest committed epoch that some partition lacks, or 0 if there is none."""
        pending = self.view.pending()
        return max(self._now_ms() - pending[0].committed_ms, 0) / 1000 if pending else 0.0

    def concern(self, partition: Partition) -> bool:
        """Return whether a committed epoch of a sink is not completely in the log, or the state has its progress."""
        waits = any(partition.ref in record.remaining for record in self.view.pending())
        return waits or bool(partition.sinks.known(partition.state))

    def taken(self, partition: Partition) -> None:
        """Called after a take-over."""
        self.appends.taken(partition)

    async def stage(self, request: StageRequest) -> StageReply:
        return await self._stages.stage(request)

    async def commit(self, request: CommitSinkRequest) -> CommitSinkReply:
        return await self._commits.commit(request)

    async def discard(self, request: DiscardStagesRequest) -> DiscardStagesReply:
        await self._stages.discard(request)
        return DiscardStagesReply()
