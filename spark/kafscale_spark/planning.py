"""What is read, split into tasks, with one PlanScan for all partitions."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from kafscale.errors import ConfigError, CorruptData, KafscaleError
from kafscale.v1 import common_pb2
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.client import PLAN_SCAN, TOPICS, Client
from kafscale_spark.edges import Edge, TopicPartition
from kafscale_spark.filters import Pushed
from kafscale_spark.loss import data_lost
from kafscale_spark.source_options import SourceSettings
from kafscale_spark.stream_offsets import StreamOffsets
from kafscale_spark.subscription import Found, Subscription

GONE = (common_pb2.UNKNOWN_TOPIC, common_pb2.TOPIC_ID_MISMATCH)
"""What instances say of topics that were deleted, or made anew."""

_NOTHING = StreamOffsets()
_COUNTED_AT_ONCE = 4
_COUNTED_ROWS = 1 << 20
_COUNTING_TASKS = 1000


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of a partition, and their bytes in segments, about."""

    partition: TopicPartition
    start: int
    end: int
    bytes: int = 0


class Split(InputPartition):
    """One task: a range, and the instances to ask, in this order."""

    def __init__(self, part: Range, topic_id: bytes, endpoints: tuple[str, ...]) -> None:
        super().__init__(None)
        self.range = part
        self.topic_id = topic_id
        self.endpoints = endpoints


def find(client: Client, subscription: Subscription, *, expected: StreamOffsets = _NOTHING) -> Found:
    """What there is to read. The client learns of the live instances.

    ``expected`` is what was there: where an instance does not know of it, which may be behind, others are asked too.
    """
    request = pb.TopicsRequest(names=subscription.names)
    found = Found((), {})
    for reply in client.answers(TOPICS, request):
        client.knows(reply.instances)
        found = subscription.select(reply.topics)
        if expected.offsets.keys() <= set(found.partitions) and not expected.made_anew(found.ids):
            break
    return found


def plan(
    client: Client, scans: Mapping[TopicPartition, pb.PartitionScan], *, request: pb.PlanScanRequest | None = None
) -> dict[TopicPartition, pb.PartitionPlan]:
    """The plan of every partition; ``request`` has how to split. Those of topics that are gone have that status."""
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
    """The same, of whatever status for good."""
    asked = pb.PlanScanRequest()
    if request is not None:
        asked.CopyFrom(request)
    asked.scans.extend(scans.values())
    reply = client.call(PLAN_SCAN, asked, again=_not_yet)
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
    """The tasks of a batch; ``counted``: of one that only counts records. Raises ConfigError, DataLoss, Unavailable."""
    found = find(client, settings.subscription)
    missing = settings.subscription.missing(found)
    if missing:
        raise ConfigError(f"there is no {', '.join(missing)}: nothing of it can be read")
    for edge in (settings.start, settings.end):
        edge.check(found.partitions)
    wanted = [partition for partition in found.partitions if pushed.wants(partition)]
    if not wanted or pushed.start >= pushed.end:
        return []
    scans = {
        partition: pb.PartitionScan(
            partition=found.ref(partition),
            start=_later(settings.start, partition, pushed.start),
            end=_earlier(settings.end, partition, pushed.end),
        )
        for partition in wanted
    }
    # What is known of segments is enough to count, but not to count by time.
    times = _COUNTED_AT_ONCE if counted and pushed.since_ms is pushed.until_ms is None else 1
    request = pb.PlanScanRequest(split_bytes=settings.split_bytes * times, split_records=settings.split_records)
    if pushed.since_ms is not None:
        request.since_ms = pushed.since_ms
    if pushed.until_ms is not None:
        request.until_ms = pushed.until_ms
    plans = plan(client, scans, request=request)
    ranges = []
    for partition, one in plans.items():
        check_range(settings, partition, one)
        ranges += [
            Range(partition, max(split.start, pushed.start), min(split.end, pushed.end), split.bytes)
            for split in one.splits
            if max(split.start, pushed.start) < min(split.end, pushed.end)
        ]
    return tasks(ranges, found.ids, client.endpoints, settings, least=_counting(ranges) if times > 1 else 1)


def _counting(ranges: Iterable[Range]) -> int:
    """How many tasks a count has at least: Spark makes a row of each record, and has several cores for that."""
    return min(sum(part.end - part.start for part in ranges) // _COUNTED_ROWS, _COUNTING_TASKS)


def _later(edge: Edge, partition: TopicPartition, offset: int) -> pb.Bound:
    """The edge, or ``offset`` where that is surely later."""
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
    """What was asked for by its offset must be in the log, or is lost; a timestamp must have a record."""
    name = f"topic {partition[0]}, partition {partition[1]}"
    fail = settings.fail_on_data_loss
    if is_gone(found):
        data_lost(f"{name} is not there any more: {found.detail}", fail=fail)
        return
    has = f"the log has {found.log_start} to {found.committed_end}"
    for edge in (settings.start, settings.end):
        asked = edge.offset_of(partition)
        if asked is not None and not found.log_start <= asked <= found.committed_end:
            data_lost(f"{name}: {edge.option} asks for offset {asked}, {has}", fail=fail)
    if settings.start.by_time and found.start == found.committed_end and not settings.latest_if_no_timestamp:
        raise ConfigError(
            f"{name}: {settings.start.option} asks for {settings.start.of(partition)}, and no record has this "
            "timestamp or a later one (startingOffsetsByTimestampStrategy=latest begins at the latest instead)"
        )


def tasks(
    ranges: Sequence[Range],
    ids: Mapping[str, bytes],
    endpoints: tuple[str, ...],
    settings: SourceSettings,
    *,
    least: int = 1,
) -> list[InputPartition]:
    """A task for every range, or more of them, at ``least`` so many, spread over the instances."""
    divided = at_least(ranges, max(settings.min_partitions, least))
    return [
        Split(part, ids[part.partition[0]], endpoints[i % len(endpoints) :] + endpoints[: i % len(endpoints)])
        for i, part in enumerate(divided)
    ]


def at_least(ranges: Iterable[Range], count: int) -> list[Range]:
    """The same offsets in ``count`` ranges, if there are so many: the largest is halved until it is so, in order."""
    heap = [(-part.bytes, -(part.end - part.start), part.partition, part.start, part) for part in ranges]
    heapq.heapify(heap)
    while len(heap) < count:
        whole = [item for item in heap if item[1] < -1]
        if not whole:
            break
        if heap[0][1] >= -1:
            # A single offset with many bytes: the largest that can be halved is another.
            largest = min(whole)
            heap.remove(largest)
            heapq.heapify(heap)
        else:
            largest = heapq.heappop(heap)
        part = largest[-1]
        middle = (part.start + part.end) // 2
        size = part.bytes // 2
        for half in (replace(part, end=middle, bytes=size), replace(part, start=middle, bytes=size)):
            heapq.heappush(heap, (-size, -(half.end - half.start), half.partition, half.start, half))
    return sorted((item[-1] for item in heap), key=lambda part: (part.partition, part.start))
