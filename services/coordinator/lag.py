"""How far groups are behind, for /metrics: what they committed against what the metadata store says of the logs."""

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

_PARTITIONS_AT_ONCE = 100  # operations of a transaction are limited to 128
_YIELD_EVERY = 100  # groups

_Committed = tuple[str, Offset]  # by which group


class Lags:
    """Records between a group's committed offsets and the ends of a topic's logs, for each group and topic.

    ``seconds`` pass between two looks; the ``most`` largest lags are kept. A partition counts when the group has an
    offset of it; what retention has deleted does not.
    """

    def __init__(self, metadata: MetadataStore, namespace: str, *, seconds: float, most: int) -> None:
        self._metadata = metadata
        self._namespace = namespace
        self._seconds = seconds
        self._most = most
        self._lags: dict[tuple[str, str], int] = {}
        self.left_out = 0
        """Groups and topics that are not among the largest."""

    def shown(self, served: Callable[[str], bool]) -> Mapping[tuple[str, str], int]:
        """By group and topic, of the groups that are still ``served`` here."""
        return {key: lag for key, lag in self._lags.items() if served(key[0])}

    async def run(self, groups: Callable[[], Iterable[Groups]]) -> None:
        """Look at all ``groups`` again and again, until cancelled; while the store does not answer all stays."""
        while True:
            await trio.sleep(self._seconds)
            try:
                await self.look(groups())
            except STORE_FAILURES as error:
                log.info("lags of groups are not known anew", error=str(error))

    async def look(self, groups: Iterable[Groups]) -> None:
        """Raises Unavailable, Refused."""
        lags: Counter[tuple[str, str]] = Counter()
        committed = iter((await _committed(groups)).items())
        while some := dict(islice(committed, _PARTITIONS_AT_ONCE)):
            keys = [paths.partition_state_key(self._namespace, *partition) for partition in some]
            found = await self._metadata.txn([], [Get(key) for key in keys])
            for ((topic, _), offsets), item in zip(some.items(), found.reads, strict=True):
                state = None if item is None else _parsed(item.value)
                for group, offset in offsets:
                    if state is not None and state.topic_id == offset.topic_id:
                        lags[group, topic] += max(0, state.high_watermark - max(offset.offset, state.log_start))
        self._lags = dict(lags.most_common(self._most))
        self.left_out = len(lags) - len(self._lags)


async def _committed(groups: Iterable[Groups]) -> dict[tuple[str, int], list[_Committed]]:
    """By topic and partition."""
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
