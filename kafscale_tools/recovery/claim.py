"""Claims the name of a topic that is being copied before anything is stored, then creates the topic or gives up.

The claim takes the topic's epoch from the cluster's epoch floor and raises that floor. So objects that a failed copy
leaves behind have a lower epoch than any later topic of the name, like late objects of a deleted topic. Readers ignore
them, and writers that need their keys replace them. The claim consists of the epoch histories written in the same
transaction. They change if the topic is created and deleted meanwhile, or by another copy, and a copy whose histories
have changed creates no topic.
"""

from contextlib import suppress
from dataclasses import dataclass, replace

import trio

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.metadata.interface import Delete, Get, Operation, Put, TooLarge, Unchanged
from kafscale.metadata.state import check_size
from kafscale.metadata.topic_values import REWRITE_STATE_FORMAT, ClusterInfo, TopicInfo
from kafscale.v1.metadata_pb2 import EpochHistory, LastSegment, PartitionState, RootRef
from kafscale_tools.recovery.apply import sure
from kafscale_tools.recovery.cut import CannotCopy
from kafscale_tools.recovery.stores import Stores

_FORMAT = 1
_GIVE_UP_SECONDS = 30.0
_MOST_INT32, _MOST_INT64 = 2**31 - 1, 2**63 - 1


class NameTaken(KafscaleError):
    """The new topic's name was taken by others meanwhile. Their topic was not changed."""


class LeftOver(KafscaleError):
    """Objects that belong to no topic exist below the new topic's prefix. Nothing was changed."""


@dataclass(slots=True)
class CopiedLog:
    """A new partition, with the offsets from ``start`` up to, but not including, ``end``.

    ``source_end`` is the end of the source partition. ``segments`` and ``size`` (bytes) include rewritten objects,
    which ``root`` names. ``last`` is the last segment, which ends at ``last_end``.
    """

    partition: int
    start: int
    end: int
    source_end: int
    segments: int = 0
    size: int = 0
    root: RootRef | None = None
    last: LastSegment | None = None
    last_end: int = -1

    @property
    def left_out(self) -> int:
        """The number of offsets of the source that are behind its end."""
        return self.source_end - self.end


class Claim:
    """The claim of a name: call `check`, `take`, then `publish` or `give_up`.

    ``made`` is the new topic. `take` determines its epochs.
    """

    def __init__(self, stores: Stores, made: TopicInfo) -> None:
        self._metadata = stores.metadata
        self._objects = stores.objects
        self._namespace = stores.namespace
        self._topic_key = paths.topic_key(stores.namespace, made.name)
        self._made = made
        self._seen = 0
        self._held: Unchanged | None = None

    @property
    def epoch(self) -> int:
        """The epoch of everything that is stored for the topic."""
        return self._made.epoch_floor + 1

    def snapshot_key(self, log: CopiedLog) -> str:
        """Return the key of the producer snapshot at the end of a new partition."""
        return _snapshot_key(self._namespace, self._made, log)

    async def check(self) -> None:
        """Check that the topic can be created. Raises CannotCopy, LeftOver, Unavailable, Refused."""
        worst = replace(self._made, epoch_floor=_MOST_INT32 - 1)
        last = LastSegment(base_offset=_MOST_INT64, size=_MOST_INT32, crc=_MOST_INT32)
        root = RootRef(number=_MOST_INT64, epoch=_MOST_INT32, attempt=_MOST_INT32, crc=_MOST_INT32, through=_MOST_INT64)
        logs = [
            CopiedLog(number, _MOST_INT64 - 1, _MOST_INT64, 0, root=root, last=last, last_end=_MOST_INT64)
            for number in range(worst.partitions)
        ]
        cluster = Put(paths.cluster_key(self._namespace), ClusterInfo("", _MOST_INT32).value())
        try:
            check_size((), [cluster, *self._histories(worst)], [*self._states(worst, logs), self._topic(worst)])
        except TooLarge as error:
            raise CannotCopy(
                f"{worst.partitions} partitions are too many for one metadata store transaction: {error}"
            ) from error
        prefix = f"{self._namespace}/{worst.name}/"
        if await self._objects.list_from(prefix, "", 1):
            raise LeftOver(
                f"objects below {prefix} belong to no topic, for example after a restore was killed: use another name, "
                "or delete them"
            )
        history = await self._metadata.get(self._history_keys(worst)[0])
        self._seen = history.mod_revision if history else 0

    async def take(self) -> None:
        """Take an epoch and the name. Raises NameTaken, Unavailable."""
        cluster_key, first = paths.cluster_key(self._namespace), self._history_keys(self._made)[0]
        while self._held is None:
            reads = [Get(cluster_key), Get(self._topic_key), Get(first)]
            cluster, topic, history = (await self._metadata.txn((), reads)).reads
            if topic is not None or cluster is None:
                raise NameTaken(f"topic {self._made.name} was created meanwhile")
            if (history.mod_revision if history else 0) != self._seen:
                raise NameTaken(f"another restore into {self._made.name} was started meanwhile")
            before = ClusterInfo.read(cluster)
            made = replace(self._made, epoch_floor=before.epoch_floor)
            epoch = made.epoch_floor + 1
            done = await self._metadata.txn(
                [
                    Unchanged(cluster_key, cluster.mod_revision),
                    Unchanged(self._topic_key, 0),
                    Unchanged(first, self._seen),
                ],
                [Put(cluster_key, before.lifted_to(epoch).value()), *self._histories(made)],
            )
            if done.succeeded:
                self._made, self._held = made, Unchanged(first, done.revision)

    async def publish(self, logs: list[CopiedLog]) -> None:
        """Create the topic. Raises NameTaken, Refused, and Unavailable, after which the topic may exist."""
        if not await self._change([*self._states(self._made, logs), self._topic(self._made)]):
            found = await self._metadata.get(self._topic_key)
            # The answer may have been lost, and the topic may have changed since.
            if found is None or TopicInfo.read(found).id != self._made.id:
                raise NameTaken(f"topic {self._made.name} was created, or another restore into it started, meanwhile")

    async def give_up(self, *, stored: bool) -> None:
        """Remove the claim. Errors are ignored, and so is a topic that exists by now.

        If objects were ``stored``, or may still be, a topic in deletion is created, so that its objects are deleted as
        usual and the name stays taken until the last one is gone.
        """
        with trio.move_on_after(_GIVE_UP_SECONDS, shield=True), suppress(KafscaleError):
            if stored:
                logs = [CopiedLog(number, 0, 0, 0) for number in range(self._made.partitions)]
                await self._change([*self._states(self._made, logs), self._topic(self._made.deleting())])
            else:
                await self._change([Delete(key) for key in self._history_keys(self._made)])

    async def _change(self, operations: list[Operation]) -> bool:
        """Apply ``operations`` if the claim is still valid. Returns whether it was."""
        if self._held is None:
            return False
        return bool(await sure(self._metadata, [Unchanged(self._topic_key, 0), self._held], operations))

    def _history_keys(self, made: TopicInfo) -> list[str]:
        return [paths.epoch_history_key(self._namespace, made.name, each) for each in range(made.partitions)]

    def _histories(self, made: TopicInfo) -> list[Operation]:
        entry = EpochHistory.Entry(epoch=made.epoch_floor + 1, first_offset=0)
        value = EpochHistory(format=_FORMAT, entries=[entry], topic_id=made.id).SerializeToString()
        return [Put(key, value) for key in self._history_keys(made)]

    def _topic(self, made: TopicInfo) -> Operation:
        return Put(self._topic_key, made.value())

    def _states(self, made: TopicInfo, logs: list[CopiedLog]) -> list[Operation]:
        puts: list[Operation] = []
        for log in logs:
            state = PartitionState(
                format=_FORMAT,
                topic_id=made.id,
                epoch=made.epoch_floor + 1,
                log_start=log.start,
                high_watermark=log.end,
                producers_from=log.end,
                # Requests of an earlier attempt may still take effect.
                unclean=True,
            )
            if log.start < log.end:
                state.producer_snapshot = _snapshot_key(self._namespace, made, log)
            if log.root is not None:
                state.format = REWRITE_STATE_FORMAT
                state.root.CopyFrom(log.root)
            if log.last is not None and log.last_end == log.end:
                state.last_segment.CopyFrom(log.last)
            key = paths.partition_state_key(self._namespace, made.name, log.partition)
            puts.append(Put(key, state.SerializeToString()))
        return puts


def _snapshot_key(namespace: str, made: TopicInfo, log: CopiedLog) -> str:
    return paths.producer_snapshot_key(namespace, made.name, log.partition, log.end, made.epoch_floor + 1)
