from kafscale.v1 import common_pb2 as _common_pb2
from kafscale.v1 import segment_pb2 as _segment_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AppendRequest(_message.Message):
    __slots__ = ("stream_id", "sequence", "seen", "appends", "wait_ms")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    APPENDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    sequence: int
    seen: int
    appends: _containers.RepeatedCompositeFieldContainer[PartitionAppend]
    wait_ms: int
    def __init__(self, stream_id: _Optional[str] = ..., sequence: _Optional[int] = ..., seen: _Optional[int] = ..., appends: _Optional[_Iterable[_Union[PartitionAppend, _Mapping]]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class PartitionAppend(_message.Message):
    __slots__ = ("partition", "records", "unacknowledged", "trace")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    records: bytes
    unacknowledged: bool
    trace: str
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., records: _Optional[bytes] = ..., unacknowledged: _Optional[bool] = ..., trace: _Optional[str] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("results", "committed")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionAppended]
    committed: _containers.RepeatedCompositeFieldContainer[Committed]
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionAppended, _Mapping]]] = ..., committed: _Optional[_Iterable[_Union[Committed, _Mapping]]] = ...) -> None: ...

class PartitionAppended(_message.Message):
    __slots__ = ("status", "detail", "epoch", "base_offset", "end_offset", "log_start", "append_time_ms", "hold_until", "owner", "durable_soon")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    HOLD_UNTIL_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    DURABLE_SOON_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    epoch: int
    base_offset: int
    end_offset: int
    log_start: int
    append_time_ms: int
    hold_until: int
    owner: str
    durable_soon: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., epoch: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., log_start: _Optional[int] = ..., append_time_ms: _Optional[int] = ..., hold_until: _Optional[int] = ..., owner: _Optional[str] = ..., durable_soon: _Optional[bool] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("stream_id", "max_bytes", "fetches", "scan", "more_max_bytes")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    FETCHES_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    MORE_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    max_bytes: int
    fetches: _containers.RepeatedCompositeFieldContainer[PartitionFetch]
    scan: bool
    more_max_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stream_id: _Optional[str] = ..., max_bytes: _Optional[int] = ..., fetches: _Optional[_Iterable[_Union[PartitionFetch, _Mapping]]] = ..., scan: _Optional[bool] = ..., more_max_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class PartitionFetch(_message.Message):
    __slots__ = ("partition", "offset", "max_bytes", "leader_epoch", "group")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    offset: int
    max_bytes: int
    leader_epoch: int
    group: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., group: _Optional[int] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionFetched]
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionFetched, _Mapping]]] = ...) -> None: ...

class PartitionFetched(_message.Message):
    __slots__ = ("status", "detail", "epoch", "high_watermark", "log_start", "records", "owner")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    epoch: int
    high_watermark: int
    log_start: int
    records: bytes
    owner: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start: _Optional[int] = ..., records: _Optional[bytes] = ..., owner: _Optional[str] = ...) -> None: ...

class CommitsRequest(_message.Message):
    __slots__ = ("stream_id",)
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    def __init__(self, stream_id: _Optional[str] = ...) -> None: ...

class CommitsEvent(_message.Message):
    __slots__ = ("ready", "committed")
    READY_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    committed: _containers.RepeatedCompositeFieldContainer[Committed]
    def __init__(self, ready: _Optional[bool] = ..., committed: _Optional[_Iterable[_Union[Committed, _Mapping]]] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("partition", "epoch", "high_watermark", "log_start", "lost", "in_memory")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    IN_MEMORY_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    epoch: int
    high_watermark: int
    log_start: int
    lost: bool
    in_memory: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start: _Optional[int] = ..., lost: _Optional[bool] = ..., in_memory: _Optional[int] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("queries",)
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[PartitionQuery]
    def __init__(self, queries: _Optional[_Iterable[_Union[PartitionQuery, _Mapping]]] = ...) -> None: ...

class PartitionQuery(_message.Message):
    __slots__ = ("partition", "timestamp", "leader_epoch")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    timestamp: int
    leader_epoch: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., timestamp: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class ListOffsetsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ...) -> None: ...

class PartitionOffset(_message.Message):
    __slots__ = ("status", "detail", "offset", "timestamp", "leader_epoch", "owner")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    offset: int
    timestamp: int
    leader_epoch: int
    owner: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., offset: _Optional[int] = ..., timestamp: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class FlushRequest(_message.Message):
    __slots__ = ("partitions", "for_plan")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FOR_PLAN_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.PartitionRef]
    for_plan: bool
    def __init__(self, partitions: _Optional[_Iterable[_Union[_common_pb2.PartitionRef, _Mapping]]] = ..., for_plan: _Optional[bool] = ...) -> None: ...

class FlushReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionFlushed]
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionFlushed, _Mapping]]] = ...) -> None: ...

class PartitionFlushed(_message.Message):
    __slots__ = ("partition", "status", "detail", "high_watermark", "owner")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    status: _common_pb2.Status
    detail: str
    high_watermark: int
    owner: str
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., high_watermark: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class DeleteRecordsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionTruncation]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionTruncation, _Mapping]]] = ...) -> None: ...

class PartitionTruncation(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    offset: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class DeleteRecordsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionTruncated]
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionTruncated, _Mapping]]] = ...) -> None: ...

class PartitionTruncated(_message.Message):
    __slots__ = ("status", "detail", "log_start", "owner")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    log_start: int
    owner: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., log_start: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class EpochEndsRequest(_message.Message):
    __slots__ = ("queries",)
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[EpochQuery]
    def __init__(self, queries: _Optional[_Iterable[_Union[EpochQuery, _Mapping]]] = ...) -> None: ...

class EpochQuery(_message.Message):
    __slots__ = ("partition", "epoch", "leader_epoch")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    epoch: int
    leader_epoch: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., epoch: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class EpochEndsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EpochEnd]
    def __init__(self, results: _Optional[_Iterable[_Union[EpochEnd, _Mapping]]] = ...) -> None: ...

class EpochEnd(_message.Message):
    __slots__ = ("status", "detail", "epoch", "end_offset", "owner")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    epoch: int
    end_offset: int
    owner: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class ProducersRequest(_message.Message):
    __slots__ = ("queries",)
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[ProducersQuery]
    def __init__(self, queries: _Optional[_Iterable[_Union[ProducersQuery, _Mapping]]] = ...) -> None: ...

class ProducersQuery(_message.Message):
    __slots__ = ("partition",)
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ...) -> None: ...

class ProducersReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionProducers]
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionProducers, _Mapping]]] = ...) -> None: ...

class PartitionProducers(_message.Message):
    __slots__ = ("status", "detail", "producers", "owner")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    producers: _containers.RepeatedCompositeFieldContainer[KnownProducer]
    owner: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., producers: _Optional[_Iterable[_Union[KnownProducer, _Mapping]]] = ..., owner: _Optional[str] = ...) -> None: ...

class KnownProducer(_message.Message):
    __slots__ = ("producer_id", "epoch", "last_sequence", "used_ms")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    USED_MS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    last_sequence: int
    used_ms: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., used_ms: _Optional[int] = ...) -> None: ...

class LogSizesRequest(_message.Message):
    __slots__ = ("queries", "wait_ms")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[SizeQuery]
    wait_ms: int
    def __init__(self, queries: _Optional[_Iterable[_Union[SizeQuery, _Mapping]]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class SizeQuery(_message.Message):
    __slots__ = ("partition",)
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ...) -> None: ...

class LogSizesReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[LogSize]
    def __init__(self, results: _Optional[_Iterable[_Union[LogSize, _Mapping]]] = ...) -> None: ...

class LogSize(_message.Message):
    __slots__ = ("status", "detail", "bytes", "owner", "segments")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    bytes: int
    owner: str
    segments: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., bytes: _Optional[int] = ..., owner: _Optional[str] = ..., segments: _Optional[int] = ...) -> None: ...

class SegmentsRequest(_message.Message):
    __slots__ = ("partition", "start", "limit", "verify", "reindex")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    REINDEX_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    start: int
    limit: int
    verify: bool
    reindex: bool
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., start: _Optional[int] = ..., limit: _Optional[int] = ..., verify: _Optional[bool] = ..., reindex: _Optional[bool] = ...) -> None: ...

class SegmentsReply(_message.Message):
    __slots__ = ("status", "detail", "owner", "segments", "next", "high_watermark")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    owner: str
    segments: _containers.RepeatedCompositeFieldContainer[StoredSegment]
    next: int
    high_watermark: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., owner: _Optional[str] = ..., segments: _Optional[_Iterable[_Union[StoredSegment, _Mapping]]] = ..., next: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class StoredSegment(_message.Message):
    __slots__ = ("base_offset", "end_offset", "bytes", "epoch", "object", "faults", "reindexed")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    REINDEXED_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    end_offset: int
    bytes: int
    epoch: int
    object: str
    faults: _containers.RepeatedScalarFieldContainer[str]
    reindexed: bool
    def __init__(self, base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., bytes: _Optional[int] = ..., epoch: _Optional[int] = ..., object: _Optional[str] = ..., faults: _Optional[_Iterable[str]] = ..., reindexed: _Optional[bool] = ...) -> None: ...

class DescribeSegmentRequest(_message.Message):
    __slots__ = ("partition", "offset", "first_batch", "limit")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_BATCH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    offset: int
    first_batch: int
    limit: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., offset: _Optional[int] = ..., first_batch: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class SegmentDescribed(_message.Message):
    __slots__ = ("status", "detail", "owner", "contents")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    owner: str
    contents: _segment_pb2.SegmentContents
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., owner: _Optional[str] = ..., contents: _Optional[_Union[_segment_pb2.SegmentContents, _Mapping]] = ...) -> None: ...

class TopicsRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class TopicsReply(_message.Message):
    __slots__ = ("topics", "instances")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicDescription]
    instances: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicDescription, _Mapping]]] = ..., instances: _Optional[_Iterable[str]] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("name", "id", "partitions", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: bytes
    partitions: int
    configs: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., id: _Optional[bytes] = ..., partitions: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Bound(_message.Message):
    __slots__ = ("earliest", "latest", "offset", "timestamp")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    earliest: bool
    latest: bool
    offset: int
    timestamp: int
    def __init__(self, earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., offset: _Optional[int] = ..., timestamp: _Optional[int] = ...) -> None: ...

class PartitionScan(_message.Message):
    __slots__ = ("partition", "start", "end")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    start: Bound
    end: Bound
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., start: _Optional[_Union[Bound, _Mapping]] = ..., end: _Optional[_Union[Bound, _Mapping]] = ...) -> None: ...

class PlanScanRequest(_message.Message):
    __slots__ = ("scans", "split_bytes", "split_records", "since_ms", "until_ms")
    SCANS_FIELD_NUMBER: _ClassVar[int]
    SPLIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPLIT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    scans: _containers.RepeatedCompositeFieldContainer[PartitionScan]
    split_bytes: int
    split_records: int
    since_ms: int
    until_ms: int
    def __init__(self, scans: _Optional[_Iterable[_Union[PartitionScan, _Mapping]]] = ..., split_bytes: _Optional[int] = ..., split_records: _Optional[int] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class PlanScanReply(_message.Message):
    __slots__ = ("plans",)
    PLANS_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[PartitionPlan]
    def __init__(self, plans: _Optional[_Iterable[_Union[PartitionPlan, _Mapping]]] = ...) -> None: ...

class PartitionPlan(_message.Message):
    __slots__ = ("status", "detail", "log_start", "high_watermark", "start", "end", "splits")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    log_start: int
    high_watermark: int
    start: int
    end: int
    splits: _containers.RepeatedCompositeFieldContainer[Split]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., log_start: _Optional[int] = ..., high_watermark: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., splits: _Optional[_Iterable[_Union[Split, _Mapping]]] = ...) -> None: ...

class Split(_message.Message):
    __slots__ = ("start", "end", "bytes")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    bytes: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("partition", "start", "end", "piece_bytes", "mode", "since_ms", "until_ms")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BATCHES: _ClassVar[ScanRequest.Mode]
        COUNT: _ClassVar[ScanRequest.Mode]
    BATCHES: ScanRequest.Mode
    COUNT: ScanRequest.Mode
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PIECE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    start: int
    end: int
    piece_bytes: int
    mode: ScanRequest.Mode
    since_ms: int
    until_ms: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., piece_bytes: _Optional[int] = ..., mode: _Optional[_Union[ScanRequest.Mode, str]] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class ScanPiece(_message.Message):
    __slots__ = ("status", "detail", "first_offset", "next_offset", "epoch", "object", "position", "records", "count", "log_start")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    first_offset: int
    next_offset: int
    epoch: int
    object: str
    position: int
    records: bytes
    count: int
    log_start: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., first_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., object: _Optional[str] = ..., position: _Optional[int] = ..., records: _Optional[bytes] = ..., count: _Optional[int] = ..., log_start: _Optional[int] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("partition", "key", "size", "crc", "batches", "records")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    key: str
    size: int
    crc: int
    batches: int
    records: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., key: _Optional[str] = ..., size: _Optional[int] = ..., crc: _Optional[int] = ..., batches: _Optional[int] = ..., records: _Optional[int] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("sink", "epoch", "partition", "records")
    SINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    sink: str
    epoch: int
    partition: _common_pb2.PartitionRef
    records: bytes
    def __init__(self, sink: _Optional[str] = ..., epoch: _Optional[int] = ..., partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., records: _Optional[bytes] = ...) -> None: ...

class StageReply(_message.Message):
    __slots__ = ("status", "detail", "stage")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    stage: Stage
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., stage: _Optional[_Union[Stage, _Mapping]] = ...) -> None: ...

class CommitSinkRequest(_message.Message):
    __slots__ = ("sink", "epoch", "stages", "wait_ms", "once")
    SINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    sink: str
    epoch: int
    stages: _containers.RepeatedCompositeFieldContainer[Stage]
    wait_ms: int
    once: bool
    def __init__(self, sink: _Optional[str] = ..., epoch: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., wait_ms: _Optional[int] = ..., once: _Optional[bool] = ...) -> None: ...

class CommitSinkReply(_message.Message):
    __slots__ = ("status", "detail", "already", "applied")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    already: bool
    applied: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., already: _Optional[bool] = ..., applied: _Optional[bool] = ...) -> None: ...

class DiscardStagesRequest(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, keys: _Optional[_Iterable[str]] = ...) -> None: ...

class DiscardStagesReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
