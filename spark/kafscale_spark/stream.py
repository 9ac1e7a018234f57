"""The streaming reader on the driver: the start of a stream, and the end and the tasks of each trigger."""

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
    """One query's view of the log. It keeps the latest offsets, and the end of AvailableNow."""

    def __init__(self, settings: SourceSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        # The first trigger does not wait, as in Spark's Kafka source.
        self._last_trigger = -math.inf
        self._target: StreamOffsets | None = None
        self.newest: StreamOffsets | None = None

    def initial(self) -> StreamOffsets:
        """Return the start of a query that has no checkpoint."""
        settings = self._settings
        with Client(settings.connection) as client:
            found = find(client, settings.subscription)
            missing = settings.subscription.missing(found)
            if missing:
                raise ConfigError(f"no such topic or partition: {', '.join(missing)}")
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
        """Read no later records, for Trigger.AvailableNow."""
        with Client(self._settings.connection) as client:
            found = find(client, self._settings.subscription)
            plans = plan(client, _scans(found, StreamOffsets(), found.partitions))
        self._target = StreamOffsets(
            {key: one.high_watermark for key, one in plans.items() if not is_gone(one)}, found.ids
        )

    def latest(self, start: StreamOffsets, rates: Rates = _NOT_LIMITED) -> StreamOffsets:
        """Return the end of the trigger that begins at ``start``. Raises DataLoss."""
        with Client(self._settings.connection) as client:
            found = find(client, self._settings.subscription, expected=start)
            start = self._without_lost(start, found.partitions, found.ids)
            plans = plan(client, _scans(found, start, found.partitions))
            for key in start.offsets:
                self._check(key, None, plans[key])
            behind = {
                # The stream may be ahead of the end that this instance knows.
                key: Behind(max(one.start, one.log_start), max(one.high_watermark, one.start), _bytes(one))
                for key, one in plans.items()
                if not is_gone(one)
            }
            ends = {key: part.end for key, part in behind.items()}
            self.newest = StreamOffsets(ends, found.ids)
            if self._target is not None:
                self._target = _extended(self._target, start, self.newest)
                behind = _limited_to(self._target, behind, found)
            ends = self._limited(client, found, behind, rates)
        reached = {key: max(end, start.offsets.get(key, 0)) for key, end in ends.items()}
        return StreamOffsets(reached, {topic: found.ids[topic] for topic, _ in reached})

    def partitions(self, start: StreamOffsets, end: StreamOffsets) -> list[InputPartition]:
        """Return the tasks of a trigger. Raises DataLoss, Unavailable."""
        settings = self._settings
        # Before 4.2, Spark does not pass the start of a run to `latest`, so lost topics are detected here.
        self._check_view(start, end)
        begun = self._without_lost(start, end.offsets, end.ids)
        unread = {key: stop for key, stop in end.offsets.items() if begun.offsets.get(key, -1) < stop}
        if not unread:
            return []
        known = Found(tuple(sorted(unread)), end.ids)
        with Client(settings.connection) as client:
            # This also tells the client about other instances.
            find(client, settings.subscription, expected=StreamOffsets(unread, end.ids))
            plans = plan(client, _scans(known, begun, known.partitions, unread), request=range_request(settings))
            ranges = []
            for key, one in plans.items():
                self._check(key, begun.offsets.get(key), one)
                ranges += [Range(key, split.start, split.end, split.bytes) for split in one.splits]
            return tasks(ranges, end.ids, client.endpoints, settings)

    def _check(self, partition: TopicPartition, start: int | None, found: pb.PartitionPlan) -> None:
        name, fail = f"topic {partition[0]}, partition {partition[1]}", self._settings.fail_on_data_loss
        if is_gone(found):
            data_lost(f"{name} no longer exists: {found.detail}", fail=fail)
        elif start is not None and start < found.log_start:
            data_lost(
                f"{name}: offsets {start} to {found.log_start - 1} were deleted before they were read; "
                f"the log begins at {found.log_start}",
                fail=fail,
            )

    def _check_view(self, start: StreamOffsets, end: StreamOffsets) -> None:
        """Raise Unavailable if ``end`` lacks existing topics: an instance with old metadata reported it."""
        recreated = start.recreated(end.ids)
        missing = {key for key in start.offsets if key not in end.offsets or key[0] in recreated}
        if not missing:
            return
        with Client(self._settings.connection) as client:
            found = find(client, self._settings.subscription, expected=start)
        behind = sorted(
            {topic for topic, _ in missing.intersection(found.partitions) if found.ids[topic] == start.ids[topic]}
        )
        if behind:
            raise Unavailable(
                f"the end of the log came from a storage instance that does not know {', '.join(behind)} yet; "
                "restart the query"
            )

    def _without_lost(
        self, start: StreamOffsets, partitions: Collection[TopicPartition], ids: Mapping[str, bytes]
    ) -> StreamOffsets:
        """Return ``start`` without deleted and recreated topics, which are lost. Raises DataLoss."""
        fail = self._settings.fail_on_data_loss
        gone = sorted(start.offsets.keys() - set(partitions))
        if gone:
            names = ", ".join(f"{topic}-{number}" for topic, number in gone[:10])
            data_lost(f"{len(gone)} partitions no longer exist: {names}", fail=fail)
        recreated = start.recreated(ids)
        if recreated:
            data_lost(
                f"topics were deleted and recreated, so their offsets refer to other records: {', '.join(recreated)}",
                fail=fail,
            )
        return start.only(key for key in partitions if key[0] not in recreated)

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
        """Return ``ends``, reduced if the records up to them have more bytes than estimated."""
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
    """Return scans from ``start``, or the beginning of partitions not in it, to ``ends`` or the latest offsets."""
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


def _extended(target: StreamOffsets, start: StreamOffsets, newest: StreamOffsets) -> StreamOffsets:
    """Return ``target`` plus ``newest`` for partitions being read that it lacks, because old metadata was reported."""
    recreated = start.recreated(target.ids)
    kept = {key: end for key, end in target.offsets.items() if key[0] not in recreated}
    return StreamOffsets({**newest.only(start.offsets).offsets, **kept}, {**target.ids, **start.ids})


def _limited_to(
    target: StreamOffsets, behind: Mapping[TopicPartition, Behind], found: Found
) -> dict[TopicPartition, Behind]:
    """Return the part of ``behind`` that is before ``target``."""
    return {
        key: Behind(part.start, max(part.start, min(part.end, target.offsets[key])), part.bytes)
        for key, part in behind.items()
        if key in target.offsets and target.ids[key[0]] == found.ids[key[0]]
    }
