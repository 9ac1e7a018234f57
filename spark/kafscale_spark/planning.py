"""Splits a read into tasks, with one PlanScan for all partitions."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from pyspark.sql.datasource import InputPartition

from kafscale.errors import ConfigError, CorruptData, KafscaleError
from kafscale.v1 import common_pb2
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.client import PLAN_SCAN, TOPICS, Client
from kafscale_spark.edges import Edge, TopicPartition
from kafscale_spark.filters import Pushed
from kafscale_spark.loss import data_lost
from kafscale_spark.slots import configured_slots
from kafscale_spark.source_options import SourceSettings
from kafscale_spark.stream_offsets import StreamOffsets
from kafscale_spark.subscription import Found, Subscription

GONE = (common_pb2.UNKNOWN_TOPIC, common_pb2.TOPIC_ID_MISMATCH)
"""The statuses that instances return for topics that were deleted or recreated."""

_NOTHING = StreamOffsets()
_RANGE_BYTES = 256 << 20
"""The size of a planned range, in which all offsets get equal weight, and of a task if the slots are unknown."""
_TASK_BYTES = 1 << 30
_LEAST_BYTES = 16 << 20
"""The least bytes for which a task is added to fill a slot. Spark spends about a tenth of a second per task."""
_COUNTED_AT_ONCE = 4
_COUNTED_ROWS = 1 << 20
_COUNTING_TASKS = 1000


@dataclass(frozen=True, slots=True)
class Range:
    """A range of offsets of a partition, and the approximate bytes of its segments."""

    partition: TopicPartition
    start: int
    end: int
    bytes: int = 0

    def within(self, start: int, end: int) -> "Range":
        """Return the part from ``start`` up to ``end``, with its share of the bytes."""
        start, end = max(self.start, start), min(self.end, end)
        return replace(self, start=start, end=end, bytes=self.bytes * (end - start) // (self.end - self.start))


class Split(InputPartition):
    """One task: the ranges in reading order, the ids of their topics, and the instances in the order to try them."""

    def __init__(self, ranges: Sequence[Range], ids: Mapping[str, bytes], endpoints: tuple[str, ...]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.ids = {topic: ids[topic] for topic, _ in (part.partition for part in ranges)}
        self.endpoints = endpoints


def find(client: Client, subscription: Subscription, *, expected: StreamOffsets = _NOTHING) -> Found:
    """Return the partitions to read. The client learns the addresses of the live instances.

    If an instance does not know everything in ``expected``, its metadata may be old, and others are asked too.
    """
    request = pb.TopicsRequest(names=subscription.names)
    found = Found((), {})
    for reply in client.answers(TOPICS, request):
        client.knows(reply.instances)
        found = subscription.select(reply.topics)
        if expected.offsets.keys() <= set(found.partitions) and not expected.recreated(found.ids):
            break
    return found


def plan(
    client: Client, scans: Mapping[TopicPartition, pb.PartitionScan], *, request: pb.PlanScanRequest | None = None
) -> dict[TopicPartition, pb.PartitionPlan]:
    """Return the plan of every partition. ``request`` says how to split. Plans of deleted topics have a `GONE` status.

    Raises CorruptData, KafscaleError if a plan has another error status.
    """
    plans = plans_of(client, scans, request=request)
    for (topic, number), found in plans.items():
        if found.status not in {common_pb2.OK, *GONE}:
            kind = CorruptData if found.status == common_pb2.DAMAGED else KafscaleError
            status = common_pb2.Status.Name(found.status)
            raise kind(f"topic {topic}, partition {number} cannot be planned ({status}): {found.detail}")
    return plans


def plans_of(
    client: Client, scans: Mapping[TopicPartition, pb.PartitionScan], *, request: pb.PlanScanRequest | None = None
) -> dict[TopicPartition, pb.PartitionPlan]:
    """Return the plan of every partition, with any final status. `_not_yet` statuses are retried."""
    message = pb.PlanScanRequest()
    if request is not None:
        message.CopyFrom(request)
    message.scans.extend(scans.values())
    reply = client.call(PLAN_SCAN, message, again=_not_yet)
    if len(reply.plans) != len(scans):
        raise CorruptData(f"PlanScan: {len(reply.plans)} plans for {len(scans)} partitions")
    return dict(zip(scans, reply.plans, strict=True))


def is_gone(found: pb.PartitionPlan) -> bool:
    return found.status in GONE


def _not_yet(reply: pb.PlanScanReply) -> str:
    waiting = [found for found in reply.plans if found.status in {common_pb2.UNAVAILABLE, common_pb2.NOT_OWNER}]
    return f"{len(waiting)} partitions cannot be planned now: {waiting[0].detail}" if waiting else ""


def plan_batch(
    client: Client, settings: SourceSettings, pushed: Pushed, *, counted: bool = False
) -> list[InputPartition]:
    """Return the tasks of a batch, which only counts records if ``counted`` is true.

    Raises ConfigError, DataLoss, Unavailable.
    """
    found = find(client, settings.subscription)
    missing = settings.subscription.missing(found)
    if missing:
        raise ConfigError(f"no such topic or partition: {', '.join(missing)}")
    for edge in (settings.start, settings.end):
        edge.check(found.partitions)
    selected = [partition for partition in found.partitions if pushed.wants(partition)]
    if not selected or pushed.start >= pushed.end:
        return []
    scans = {
        partition: pb.PartitionScan(
            partition=found.ref(partition),
            start=_later(settings.start, partition, pushed.start),
            end=_earlier(settings.end, partition, pushed.end),
        )
        for partition in selected
    }
    # The counts of segments suffice, except for a range of time.
    counted = counted and pushed.since_ms is pushed.until_ms is None
    request = range_request(settings)
    if counted:
        request.split_bytes *= _COUNTED_AT_ONCE
    if pushed.since_ms is not None:
        request.since_ms = pushed.since_ms
    if pushed.until_ms is not None:
        request.until_ms = pushed.until_ms
    plans = plan(client, scans, request=request)
    ranges = []
    for partition, one in plans.items():
        check_range(settings, partition, one)
        ranges += [
            Range(partition, split.start, split.end, split.bytes).within(pushed.start, pushed.end)
            for split in one.splits
            if max(split.start, pushed.start) < min(split.end, pushed.end)
        ]
    return tasks(ranges, found.ids, client.endpoints, settings, counted=counted)


def range_request(settings: SourceSettings) -> pb.PlanScanRequest:
    """Return a request with the size of ranges, which `tasks` combines into tasks."""
    return pb.PlanScanRequest(split_bytes=settings.split_bytes or _RANGE_BYTES, split_records=settings.split_records)


def _later(edge: Edge, partition: TopicPartition, offset: int) -> pb.Bound:
    """Return the later of the edge and ``offset``, or the edge if they cannot be compared."""
    bound = edge.bound(partition)
    if bound.HasField("earliest") and offset > 0:
        return pb.Bound(offset=offset)
    return pb.Bound(offset=max(bound.offset, offset)) if bound.HasField("offset") else bound


def _earlier(edge: Edge, partition: TopicPartition, offset: int) -> pb.Bound:
    bound = edge.bound(partition)
    if bound.HasField("latest") and offset < 2**63 - 1:
        return pb.Bound(offset=offset)
    return pb.Bound(offset=min(bound.offset, offset)) if bound.HasField("offset") else bound


def check_range(settings: SourceSettings, partition: TopicPartition, found: pb.PartitionPlan) -> None:
    """Check that requested offsets are in the log, and that a starting timestamp has a record.

    Raises ConfigError, DataLoss.
    """
    name = f"topic {partition[0]}, partition {partition[1]}"
    fail = settings.fail_on_data_loss
    if is_gone(found):
        data_lost(f"{name} no longer exists: {found.detail}", fail=fail)
        return
    has = f"the log has {found.log_start} to {found.high_watermark}"
    for edge in (settings.start, settings.end):
        requested = edge.offset_of(partition)
        if requested is not None and not found.log_start <= requested <= found.high_watermark:
            data_lost(f"{name}: {edge.option} requests offset {requested}, but {has}", fail=fail)
    if settings.start.by_time and found.start == found.high_watermark and not settings.latest_if_no_timestamp:
        raise ConfigError(
            f"{name}: {settings.start.option} requests {settings.start.of(partition)}, but no record has this "
            "timestamp or a later one (startingOffsetsByTimestampStrategy=latest begins at the latest offset instead)"
        )


def tasks(
    ranges: Sequence[Range],
    ids: Mapping[str, bytes],
    endpoints: tuple[str, ...],
    settings: SourceSettings,
    *,
    counted: bool = False,
) -> list[InputPartition]:
    """Combine the ranges into tasks of equal bytes, spread over the instances. ``counted`` tasks read no records."""
    parts = divided(ranges, _how_many(ranges, settings, configured_slots(), counted=counted))
    if settings.split_records:
        parts = [
            few for part in parts for few in divided(part, _parts(_offsets(part), settings.split_records), even=True)
        ]
    return [
        Split(part, ids, endpoints[i % len(endpoints) :] + endpoints[: i % len(endpoints)])
        for i, part in enumerate(parts)
    ]


def _how_many(ranges: Sequence[Range], settings: SourceSettings, slots: int, *, counted: bool) -> int:
    """Return the number of tasks. For a count it depends on the rows that Spark processes."""
    size, partitions = sum(part.bytes for part in ranges), len({part.partition for part in ranges})
    most = settings.split_bytes or (_TASK_BYTES if slots else _RANGE_BYTES)
    if counted:
        counting = min(_parts(_offsets(ranges), _COUNTED_ROWS), _COUNTING_TASKS)
        count = max(_parts(size, most * _COUNTED_AT_ONCE), counting)
    elif slots:
        count = max(_parts(size, most), min(slots, max(partitions, size // _LEAST_BYTES)))
    else:
        count = max(_parts(size, most), partitions)
    if slots and count > slots:
        # Use all slots in the last round.
        count = _parts(count, slots) * slots
    return max(count, settings.min_partitions)


def _offsets(ranges: Iterable[Range]) -> int:
    return sum(part.end - part.start for part in ranges)


def _parts(whole: int, most: int) -> int:
    """Return the number of parts of at most ``most``."""
    return -(-whole // most)


def divided(ranges: Iterable[Range], count: int, *, even: bool = False) -> list[list[Range]]:
    """Divide the ranges, in order, into at most ``count`` parts of equal bytes, or of equal offsets if ``even``.

    A part may have ranges of several partitions. All offsets of a range are assumed to have equal sizes.
    """
    ordered = sorted(ranges, key=lambda part: (part.partition, part.start))
    if not ordered:
        return []
    sizes = [part.end - part.start for part in ordered]
    # Multiplied by the count, so that each part's share is a whole number.
    weights = [count * (size if even else max(part.bytes, 1)) for size, part in zip(sizes, ordered, strict=True)]
    # The sums of offsets and of weights before each range, and at the end the totals.
    before, sums = ([*accumulate(each, initial=0)] for each in (sizes, weights))
    count = min(count, before[-1])
    cuts = [0]
    for number in range(1, count):
        target = sums[-1] * number // count
        at = bisect_right(sums, target) - 1
        cut = before[at] + sizes[at] * (target - sums[at]) // weights[at]
        # Each part, including the following ones, gets at least one offset.
        cuts.append(min(max(cut, cuts[-1] + 1), before[-1] - (count - number)))
    return [_between(ordered, before, start, end) for start, end in pairwise([*cuts, before[-1]])]


def _between(ordered: Sequence[Range], before: Sequence[int], start: int, end: int) -> list[Range]:
    """Return the ranges from offset number ``start`` of all ranges up to ``end``. ``before`` is as in `divided`.

    Adjacent ranges are merged, because each range is read as one stream.
    """
    found: list[Range] = []
    at = bisect_right(before, start) - 1
    while at < len(ordered) and before[at] < end:
        whole = ordered[at]
        part = whole.within(whole.start + start - before[at], whole.start + end - before[at])
        last = found[-1] if found else None
        if last is not None and (last.partition, last.end) == (part.partition, part.start):
            found[-1] = replace(last, end=part.end, bytes=last.bytes + part.bytes)
        else:
            found.append(part)
        at += 1
    return found
