"""The streaming reader's work on the driver: where a stream begins, how far a trigger goes, and what its tasks are."""

import math
import time
from collections.abc import Callable, Collection, Mapping

from pyspark.sql.datasource import InputPartition

from kafscale.errors import ConfigError, Unavailable
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.client import Client
from kafscale_spark.edges import TopicPartition
from kafscale_spark.loss import data_lost
from kafscale_spark.planning import Range, check_range, find, is_gone, plan, range_request, tasks
from kafscale_spark.rates import Behind, Rates, ends_by_bytes, ends_by_offsets, too_few
from kafscale_spark.source_options import SourceSettings
from kafscale_spark.stream_offsets import StreamOffsets
from kafscale_spark.subscription import Found

_NOT_LIMITED = Rates()
_EARLIEST, _LATEST = pb.Bound(earliest=True), pb.Bound(latest=True)


class Stream:
    """One query's view of the log. It keeps what the newest trigger found, and where AvailableNow ends."""

    def __init__(self, settings: SourceSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        # The first trigger waits for nothing, as in Spark's Kafka source.
        self._last_trigger = -math.inf
        self._target: StreamOffsets | None = None
        self.newest: StreamOffsets | None = None

    def initial(self) -> StreamOffsets:
        """Where a query begins that has no checkpoint."""
        settings = self._settings
        with Client(settings.connection) as client:
            found = find(client, settings.subscription)
            missing = settings.subscription.missing(found)
            if missing:
                raise ConfigError(f"there is no {', '.join(missing)}: nothing of it can be read")
            settings.start.check(found.partitions)
            plans = plan(
                client,
                {
                    partition: pb.PartitionScan(
                        partition=found.ref(partition), start=settings.start.bound(partition), end=_LATEST
                    )
                    for partition in found.partitions
                },
            )
        offsets = {}
        for partition, one in plans.items():
            check_range(settings, partition, one)
            if not is_gone(one):
                offsets[partition] = min(max(one.start, one.log_start), one.high_watermark)
        return StreamOffsets(offsets, found.ids)

    def stop_here(self) -> None:
        """Nothing that comes later is read: Trigger.AvailableNow."""
        with Client(self._settings.connection) as client:
            found = find(client, self._settings.subscription)
            plans = plan(client, _scans(found, StreamOffsets(), found.partitions))
        self._target = StreamOffsets(
            {key: one.high_watermark for key, one in plans.items() if not is_gone(one)}, found.ids
        )

    def latest(self, start: StreamOffsets, rates: Rates = _NOT_LIMITED) -> StreamOffsets:
        """Where the trigger that begins at ``start`` ends. Raises DataLoss."""
        with Client(self._settings.connection) as client:
            found = find(client, self._settings.subscription, expected=start)
            start = self._still_there(start, found.partitions, found.ids)
            plans = plan(client, _scans(found, start, found.partitions))
            for key in start.offsets:
                self._check(key, None, plans[key])
            behind = {
                # An instance may know of an older end than where the stream is.
                key: Behind(max(one.start, one.log_start), max(one.high_watermark, one.start), _bytes(one))
                for key, one in plans.items()
                if not is_gone(one)
            }
            ends = {key: part.end for key, part in behind.items()}
            self.newest = StreamOffsets(ends, found.ids)
            if self._target is not None:
                self._target = _with(self._target, start, self.newest)
                behind = _until(self._target, behind, found)
            ends = self._limited(client, found, behind, rates)
        reached = {key: max(end, start.offsets.get(key, 0)) for key, end in ends.items()}
        return StreamOffsets(reached, {topic: found.ids[topic] for topic, _ in reached})

    def partitions(self, start: StreamOffsets, end: StreamOffsets) -> list[InputPartition]:
        """The tasks of a trigger. Raises DataLoss, Unavailable."""
        settings = self._settings
        # A Spark that does not say where a run begins (before 4.2) has not had this compared with what is there.
        self._check_view(start, end)
        begun = self._still_there(start, end.offsets, end.ids)
        wanted = {key: stop for key, stop in end.offsets.items() if begun.offsets.get(key, -1) < stop}
        if not wanted:
            return []
        known = Found(tuple(sorted(wanted)), end.ids)
        with Client(settings.connection) as client:
            # Also whom else can be asked.
            find(client, settings.subscription, expected=StreamOffsets(wanted, end.ids))
            plans = plan(client, _scans(known, begun, known.partitions, wanted), request=range_request(settings))
            ranges = []
            for key, one in plans.items():
                self._check(key, begun.offsets.get(key), one)
                ranges += [Range(key, split.start, split.end, split.bytes) for split in one.splits]
            return tasks(ranges, end.ids, client.endpoints, settings)

    def _check(self, partition: TopicPartition, start: int | None, found: pb.PartitionPlan) -> None:
        name, fail = f"topic {partition[0]}, partition {partition[1]}", self._settings.fail_on_data_loss
        if is_gone(found):
            data_lost(f"{name} is not there any more: {found.detail}", fail=fail)
        elif start is not None and start < found.log_start:
            data_lost(
                f"{name}: offsets {start} to {found.log_start - 1} were deleted before they were read, "
                f"the log begins at {found.log_start}",
                fail=fail,
            )

    def _check_view(self, start: StreamOffsets, end: StreamOffsets) -> None:
        """Raises Unavailable where ``end`` lacks what is there: who told it was behind, and nothing is lost."""
        anew = start.made_anew(end.ids)
        lacking = {key for key in start.offsets if key not in end.offsets or key[0] in anew}
        if not lacking:
            return
        with Client(self._settings.connection) as client:
            found = find(client, self._settings.subscription, expected=start)
        behind = sorted(
            {topic for topic, _ in lacking.intersection(found.partitions) if found.ids[topic] == start.ids[topic]}
        )
        if behind:
            raise Unavailable(
                f"where the log ends was told by a storage instance that did not know yet of {', '.join(behind)}: "
                "start the query again"
            )

    def _still_there(
        self, start: StreamOffsets, partitions: Collection[TopicPartition], ids: Mapping[str, bytes]
    ) -> StreamOffsets:
        """``start`` without what is gone, which is lost."""
        fail = self._settings.fail_on_data_loss
        gone = sorted(start.offsets.keys() - set(partitions))
        if gone:
            names = ", ".join(f"{topic}-{number}" for topic, number in gone[:10])
            data_lost(f"{len(gone)} partitions are not there any more: {names}", fail=fail)
        anew = start.made_anew(ids)
        if anew:
            data_lost(
                f"topics were deleted and made anew, so that offsets mean other records: {', '.join(anew)}", fail=fail
            )
        return start.only(key for key in partitions if key[0] not in anew)

    def _limited(
        self, client: Client, found: Found, behind: Mapping[TopicPartition, Behind], rates: Rates
    ) -> dict[TopicPartition, int]:
        now = self._clock()
        if self._target is None and too_few(behind, rates, now - self._last_trigger):
            return {key: part.start for key, part in behind.items()}
        self._last_trigger = now
        ends = {key: part.end for key, part in behind.items()}
        if rates.max_offsets is not None:
            ends = ends_by_offsets(behind, rates.max_offsets)
        if rates.max_bytes is not None and sum(part.bytes for part in behind.values()) > rates.max_bytes:
            by_bytes = ends_by_bytes(behind, rates.max_bytes)
            ends = {key: min(end, by_bytes[key]) for key, end in ends.items()}
            ends = self._within_bytes(client, found, behind, ends, rates.max_bytes)
        return ends

    def _within_bytes(
        self,
        client: Client,
        found: Found,
        behind: Mapping[TopicPartition, Behind],
        ends: Mapping[TopicPartition, int],
        limit: int,
    ) -> dict[TopicPartition, int]:
        """Records differ in size: where those up to ``ends`` have more bytes than they were taken for, fewer."""
        chosen = [key for key, end in ends.items() if end > behind[key].start]
        start = StreamOffsets({key: behind[key].start for key in chosen}, found.ids)
        plans = plan(client, _scans(found, start, chosen, ends))
        now = {
            key: Behind(behind[key].start, ends[key], 0 if is_gone(one) else _bytes(one)) for key, one in plans.items()
        }
        return dict(ends) | ends_by_bytes(now, limit)


def _scans(
    found: Found,
    start: StreamOffsets,
    partitions: "tuple[TopicPartition, ...] | list[TopicPartition]",
    ends: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, pb.PartitionScan]:
    """From where the stream is, or for partitions that it has not begun from their beginning, to the ends given."""
    return {
        key: pb.PartitionScan(
            partition=found.ref(key),
            start=pb.Bound(offset=start.offsets[key]) if key in start.offsets else _EARLIEST,
            end=_LATEST if ends is None else pb.Bound(offset=ends[key]),
        )
        for key in partitions
    }


def _bytes(found: pb.PartitionPlan) -> int:
    return sum(split.bytes for split in found.splits)


def _with(target: StreamOffsets, start: StreamOffsets, newest: StreamOffsets) -> StreamOffsets:
    """``target``, and of what it lacks that is being read all there is: who told it may have been behind."""
    anew = start.made_anew(target.ids)
    told = {key: end for key, end in target.offsets.items() if key[0] not in anew}
    return StreamOffsets({**newest.only(start.offsets).offsets, **told}, {**target.ids, **start.ids})


def _until(
    target: StreamOffsets, behind: Mapping[TopicPartition, Behind], found: Found
) -> dict[TopicPartition, Behind]:
    """What of it is before ``target``."""
    return {
        key: Behind(part.start, max(part.start, min(part.end, target.offsets[key])), part.bytes)
        for key, part in behind.items()
        if key in target.offsets and target.ids[key[0]] == found.ids[key[0]]
    }
