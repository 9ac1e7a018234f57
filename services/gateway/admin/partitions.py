"""Lists partitions and their segments, rebuilds indexes, and flushes write buffers. Functions raise RefusedPart."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import trio
from kio.schema.errors import ErrorCode

from kafscale.v1 import admin_pb2 as pb
from kafscale.v1 import common_pb2
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import DescribeSegmentRequest, LogSize, PartitionFlushed, SegmentsRequest, SizeQuery
from services.gateway.admin.logs import NOBODY, UNKNOWN, ends_of, key_of, refusal_text
from services.gateway.api import Environment
from services.gateway.owners.commit_view import Key
from services.gateway.owners.errors import RefusedPart
from services.gateway.owners.link import StorageLink
from services.gateway.owners.questions import Ask, Question, Result, ask_owners
from services.gateway.topic_cache import KnownTopic
from services.gateway.topics.resources import topic_of

_MOST_OF_THE_TIMEOUT = 0.8
_CODES = {common_pb2.DAMAGED: ErrorCode.corrupt_message, common_pb2.INVALID: ErrorCode.invalid_request}


class _Answer(Result, Protocol):
    @property
    def detail(self) -> str: ...


Q = TypeVar("Q")
R = TypeVar("R", bound=_Answer)


def known_topic(environment: Environment, name: str) -> KnownTopic:
    """Return the topic. Raises RefusedPart if it does not exist."""
    topic_of(environment, name)
    known = environment.topics.by_name(name)
    if known is None:
        raise RefusedPart(ErrorCode.unknown_topic_or_partition, f"The topic {name} does not exist.")
    return known


def _partitions(environment: Environment, names: Sequence[str]) -> list[PartitionRef]:
    """The partitions of the named topics, or of all live topics if none is named, in order."""
    view = environment.catalog.view
    topics = sorted(set(names)) or view.live_names
    return [ref for name in topics for ref in known_topic(environment, name).partitions]


async def list_partitions(environment: Environment, request: pb.ListPartitionsRequest) -> pb.ListPartitionsReply:
    refs = _partitions(environment, request.topics)
    sizes: dict[Key, LogSize] = {}

    async def ask_sizes() -> None:
        sizes.update(await _sizes(environment, refs))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_sizes)
        ends = await ends_of(environment, refs)
    reply = pb.ListPartitionsReply()
    for ref in refs:
        entry = reply.partitions.add(topic=ref.topic, partition=ref.partition, bytes=UNKNOWN, segments=UNKNOWN)
        end, size = ends[key_of(ref)], sizes.get(key_of(ref))
        entry.log_start, entry.high_watermark, entry.error = end.log_start, end.high_watermark, end.error
        if size is not None and size.status == common_pb2.OK:
            # An instance of an older release does not report the number of segments.
            entry.bytes, entry.segments = size.bytes, UNKNOWN if size.bytes and not size.segments else size.segments
        elif not entry.error:
            entry.error = NOBODY if size is None else refusal_text(size, size.detail)
        _set_owner(environment, ref, entry)
    return reply


def _set_owner(environment: Environment, ref: PartitionRef, entry: pb.PartitionStatus) -> None:
    owned = environment.ownership.get(*key_of(ref))
    entry.epoch = UNKNOWN if owned is None else owned.epoch
    live = None if owned is None else environment.router.storages.by_run_id.get(owned.owner)
    if live is not None:
        entry.owner, entry.owner_run = live.address, live.run_id


async def _sizes(environment: Environment, refs: Sequence[PartitionRef]) -> dict[Key, LogSize]:
    """The sizes that are reported in time. An owner may have to list a long log first."""
    questions: list[Question[SizeQuery, LogSize]] = [Question(key_of(ref), [SizeQuery(partition=ref)]) for ref in refs]
    most_ms = round(environment.settings.storage_timeout_ms * _MOST_OF_THE_TIMEOUT)
    with trio.move_on_after(most_ms / 1000):
        await ask_owners(environment.router, questions, StorageLink.log_sizes, grace_ms=most_ms)
    return {question.key: question.results[0] for question in questions if question.results}


async def list_segments(environment: Environment, request: pb.ListSegmentsRequest) -> pb.ListSegmentsReply:
    ref = partition_of(known_topic(environment, request.topic), request.partition)
    query = SegmentsRequest(start=max(request.start_offset, 0), limit=request.limit, verify=request.verify)
    return await _ask_segments(environment, ref, query)


async def rebuild_indexes(environment: Environment, request: pb.RebuildIndexesRequest) -> pb.ListSegmentsReply:
    ref = partition_of(known_topic(environment, request.topic), request.partition)
    start = max(request.start_offset, 0)
    return await _ask_segments(
        environment, ref, SegmentsRequest(start=start, limit=request.limit, verify=True, reindex=True)
    )


async def describe_segment(
    environment: Environment, request: pb.DescribeStoredSegmentRequest
) -> pb.DescribeStoredSegmentReply:
    ref = partition_of(known_topic(environment, request.topic), request.partition)
    query = DescribeSegmentRequest(
        partition=ref, offset=request.offset, first_batch=request.first_batch, limit=request.limit
    )
    found = await _ask_owner(environment, ref, query, StorageLink.describe_segment)
    return pb.DescribeStoredSegmentReply(contents=found.contents)


async def _ask_owner(environment: Environment, ref: PartitionRef, query: Q, ask: Ask[Q, R]) -> R:
    """Return the answer of the partition's owner."""
    question: Question[Q, R] = Question(key_of(ref), [query])
    await ask_owners(environment.router, [question], ask)
    if not question.results:
        raise RefusedPart(ErrorCode.leader_not_available, f"{ref.topic}-{ref.partition}: {NOBODY}")
    (found,) = question.results
    if found.status != common_pb2.OK:
        code = _CODES.get(found.status, ErrorCode.leader_not_available)
        raise RefusedPart(code, f"{ref.topic}-{ref.partition}: {refusal_text(found, found.detail)}")
    return found


async def _ask_segments(environment: Environment, ref: PartitionRef, query: SegmentsRequest) -> pb.ListSegmentsReply:
    query.partition.CopyFrom(ref)
    found = await _ask_owner(environment, ref, query, StorageLink.segments)
    reply = pb.ListSegmentsReply(next_offset=found.next, high_watermark=found.high_watermark)
    for each in found.segments:
        reply.segments.add(
            base_offset=each.base_offset,
            end_offset=each.end_offset,
            bytes=each.bytes,
            epoch=each.epoch,
            object=each.object,
            faults=each.faults,
            reindexed=each.reindexed,
        )
    return reply


def partition_of(topic: KnownTopic, partition: int) -> PartitionRef:
    """Return the partition. Raises RefusedPart if the topic has no partition with this number."""
    if not 0 <= partition < len(topic.partitions):
        message = f"The topic {topic.info.name} has no partition {partition}."
        raise RefusedPart(ErrorCode.unknown_topic_or_partition, message)
    return topic.partitions[partition]


async def flush_topics(environment: Environment, request: pb.FlushTopicsRequest) -> pb.FlushTopicsReply:
    refs = _partitions(environment, request.topics)
    if request.HasField("partition"):
        if len(request.topics) != 1:
            raise RefusedPart(ErrorCode.invalid_request, "A partition number requires exactly one topic.")
        refs = [partition_of(known_topic(environment, request.topics[0]), request.partition)]
    questions: list[Question[PartitionRef, PartitionFlushed]] = [Question(key_of(ref), [ref]) for ref in refs]
    # A flush may be slow on one instance, so the answers of the others must not shorten its timeout.
    grace_ms = environment.settings.storage_timeout_ms
    await ask_owners(environment.router, questions, StorageLink.flush, grace_ms=grace_ms)
    reply = pb.FlushTopicsReply()
    for ref, question in zip(refs, questions, strict=True):
        done = reply.partitions.add(topic=ref.topic, partition=ref.partition, high_watermark=UNKNOWN)
        if not question.results:
            done.error = NOBODY
        elif question.results[0].status != common_pb2.OK:
            done.error = refusal_text(question.results[0], question.results[0].detail)
        else:
            done.high_watermark = question.results[0].high_watermark
    return reply
