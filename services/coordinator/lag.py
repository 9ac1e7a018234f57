"""Consumer lag for /metrics: committed offsets, compared with the high watermarks that the owners of partitions report.

A partition without a living owner, or whose owner does not answer, counts up to the end of its segments, which the
metadata store has.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import islice

import structlog
import trio
from google.protobuf.message import DecodeError

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.metadata.interface import Get, MetadataStore
from kafscale.metadata.members import LiveMember, Members
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from kafscale.v1.storage_pb2 import ListOffsetsRequest, PartitionQuery
from services.coordinator.group import Offset
from services.coordinator.groups import Groups

log = structlog.get_logger()

_PARTITIONS_AT_ONCE = 100  # a transaction has at most 128 operations
_YIELD_EVERY = 100  # groups
_OWNER_SECONDS = 3.0
_LATEST = -1

_Committed = tuple[str, Offset]  # group id and offset
_Partition = tuple[str, int]  # topic and partition
Connect = Callable[[LiveMember], AbstractAsyncContextManager[SegmentStorageClient]]


class Lags:
    """The number of records between a group's committed offsets and the ends of a topic's logs, by group and topic.

    The lag is computed every ``seconds``, and the ``most`` largest values are kept. Only partitions with a committed
    offset count. Records that retention has deleted do not.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        namespace: str,
        *,
        storages: Members,
        connect: Connect,
        seconds: float,
        most: int,
    ) -> None:
        self._metadata = metadata
        self._namespace = namespace
        self._storages = storages
        self._connect = connect
        self._seconds = seconds
        self._most = most
        self._lags: dict[tuple[str, str], int] = {}
        self.left_out = 0
        """The number of group and topic pairs that are not among the largest."""

    def by_group_and_topic(self, served: Callable[[str], bool]) -> Mapping[tuple[str, str], int]:
        """Return the lag by group and topic of the groups that are still ``served`` here."""
        return {key: lag for key, lag in self._lags.items() if served(key[0])}

    async def run(self, groups: Callable[[], Iterable[Groups]]) -> None:
        """Compute the lag of all ``groups`` periodically until cancelled. Values are kept while the store fails."""
        while True:
            await trio.sleep(self._seconds)
            try:
                await self.measure(groups())
            except STORE_FAILURES as error:
                log.info("consumer lag not updated", error=str(error))

    async def measure(self, groups: Iterable[Groups]) -> None:
        """Compute the lag of ``groups`` once. Raises Unavailable, Refused."""
        lags: Counter[tuple[str, str]] = Counter()
        # The owners that did not answer. They are not asked again this time.
        silent: set[str] = set()
        committed = iter((await _committed(groups)).items())
        while chunk := dict(islice(committed, _PARTITIONS_AT_ONCE)):
            keys = [paths.partition_state_key(self._namespace, *partition) for partition in chunk]
            found = await self._metadata.txn([], [Get(key) for key in keys])
            states = {
                partition: state
                for partition, item in zip(chunk, found.reads, strict=True)
                if item is not None and (state := _parsed(item.value)) is not None
            }
            ends = await self._ends(states, silent)
            for partition, state in states.items():
                for group, offset in chunk[partition]:
                    if state.topic_id == offset.topic_id:
                        lags[group, partition[0]] += max(0, ends[partition] - max(offset.offset, state.log_start))
        self._lags = dict(lags.most_common(self._most))
        self.left_out = len(lags) - len(self._lags)

    async def _ends(self, states: Mapping[_Partition, PartitionState], silent: set[str]) -> dict[_Partition, int]:
        """Return the high watermarks. Owners that do not answer are added to ``silent``."""
        ends = {partition: state.high_watermark for partition, state in states.items()}
        by_owner: defaultdict[str, list[_Partition]] = defaultdict(list)
        for partition, state in states.items():
            by_owner[state.owner].append(partition)
        async with trio.open_nursery() as nursery:
            for run_id, owned in by_owner.items():
                owner = self._storages.view.by_run_id.get(run_id)
                if owner is not None and run_id not in silent:
                    asked = {partition: states[partition] for partition in owned}
                    nursery.start_soon(self._ask, owner, asked, ends, silent)
        return ends

    async def _ask(
        self,
        owner: LiveMember,
        states: Mapping[_Partition, PartitionState],
        ends: dict[_Partition, int],
        silent: set[str],
    ) -> None:
        """Put the high watermarks that the owner reports into ``ends``."""
        queries = [
            PartitionQuery(
                partition=PartitionRef(topic=topic, topic_id=state.topic_id, partition=index),
                timestamp=_LATEST,
                leader_epoch=-1,
            )
            for (topic, index), state in states.items()
        ]
        try:
            async with self._connect(owner) as storage:
                reply = await storage.list_offsets(ListOffsetsRequest(queries=queries), timeout=_OWNER_SECONDS)
        except KafscaleError as error:
            log.info("owner did not report high watermarks", address=owner.address, error=str(error))
            silent.add(owner.run_id)
            return
        for partition, result in zip(states, reply.results, strict=False):
            if result.status == Status.OK:
                ends[partition] = max(ends[partition], result.offset)


async def _committed(groups: Iterable[Groups]) -> dict[tuple[str, int], list[_Committed]]:
    """Return the committed offsets of all groups, by topic and partition."""
    found: defaultdict[tuple[str, int], list[_Committed]] = defaultdict(list)
    for each in groups:
        for number, group_id in enumerate(list(each)):
            if number % _YIELD_EVERY == 0:
                await trio.lowlevel.checkpoint()
            if group_id in each:
                for partition, offset in each[group_id].offsets.items():
                    found[partition].append((group_id, offset))
    return found


def _parsed(value: bytes) -> PartitionState | None:
    try:
        return PartitionState.FromString(value)
    except DecodeError:
        return None
