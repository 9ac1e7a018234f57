"""Consumer lag for /metrics, computed from committed offsets and the partition states in the metadata store."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import structlog
import trio
from google.protobuf.message import DecodeError

from kafscale import paths
from kafscale.metadata.interface import Get, MetadataStore
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.v1.metadata_pb2 import PartitionState
from services.coordinator.group import Offset
from services.coordinator.groups import Groups

log = structlog.get_logger()

_PARTITIONS_AT_ONCE = 100  # a transaction has at most 128 operations
_YIELD_EVERY = 100  # groups

_Committed = tuple[str, Offset]  # group id and offset


class Lags:
    """The number of records between a group's committed offsets and the ends of a topic's logs, by group and topic.

    The lag is computed every ``seconds``, and the ``most`` largest values are kept. Only partitions with a committed
    offset count. Records that retention has deleted do not.
    """

    def __init__(self, metadata: MetadataStore, namespace: str, *, seconds: float, most: int) -> None:
        self._metadata = metadata
        self._namespace = namespace
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
        committed = iter((await _committed(groups)).items())
        while chunk := dict(islice(committed, _PARTITIONS_AT_ONCE)):
            keys = [paths.partition_state_key(self._namespace, *partition) for partition in chunk]
            found = await self._metadata.txn([], [Get(key) for key in keys])
            for ((topic, _), offsets), item in zip(chunk.items(), found.reads, strict=True):
                state = None if item is None else _parsed(item.value)
                for group, offset in offsets:
                    if state is not None and state.topic_id == offset.topic_id:
                        lags[group, topic] += max(0, state.high_watermark - max(offset.offset, state.log_start))
        self._lags = dict(lags.most_common(self._most))
        self.left_out = len(lags) - len(self._lags)


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
