from kafscale.v1 import catalog_pb2 as _catalog_pb2
from kafscale.v1 import common_pb2 as _common_pb2
from kafscale.v1 import rewritten_pb2 as _rewritten_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SegmentRef(_message.Message):
    __slots__ = ("topic", "partition", "base_offset", "rewritten")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    base_offset: int
    rewritten: _rewritten_pb2.RewrittenEntry
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., rewritten: _Optional[_Union[_rewritten_pb2.RewrittenEntry, _Mapping]] = ...) -> None: ...

class WriteIndexesRequest(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentBatches]
    def __init__(self, segments: _Optional[_Iterable[_Union[SegmentBatches, _Mapping]]] = ...) -> None: ...

class SegmentBatches(_message.Message):
    __slots__ = ("segment", "offsets", "positions")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    segment: SegmentRef
    offsets: _containers.RepeatedScalarFieldContainer[int]
    positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segment: _Optional[_Union[SegmentRef, _Mapping]] = ..., offsets: _Optional[_Iterable[int]] = ..., positions: _Optional[_Iterable[int]] = ...) -> None: ...

class WriteIndexesReply(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, errors: _Optional[_Iterable[str]] = ...) -> None: ...

class VerifyReply(_message.Message):
    __slots__ = ("intact", "detail")
    INTACT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    intact: bool
    detail: str
    def __init__(self, intact: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...

class RebuildReply(_message.Message):
    __slots__ = ("status", "detail", "index", "rebuilt")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REBUILT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    index: bytes
    rebuilt: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., index: _Optional[bytes] = ..., rebuilt: _Optional[bool] = ...) -> None: ...

class LocateTimestampRequest(_message.Message):
    __slots__ = ("topic", "partition", "base_offsets", "timestamp", "start_offset", "epochs", "rewritten")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    base_offsets: _containers.RepeatedScalarFieldContainer[int]
    timestamp: int
    start_offset: int
    epochs: _containers.RepeatedScalarFieldContainer[int]
    rewritten: _containers.RepeatedCompositeFieldContainer[_rewritten_pb2.RewrittenEntry]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., base_offsets: _Optional[_Iterable[int]] = ..., timestamp: _Optional[int] = ..., start_offset: _Optional[int] = ..., epochs: _Optional[_Iterable[int]] = ..., rewritten: _Optional[_Iterable[_Union[_rewritten_pb2.RewrittenEntry, _Mapping]]] = ...) -> None: ...

class LocateReply(_message.Message):
    __slots__ = ("status", "detail", "found", "segment", "position", "offset", "timestamp", "newest")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    detail: str
    found: bool
    segment: SegmentRef
    position: int
    offset: int
    timestamp: int
    newest: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ..., found: _Optional[bool] = ..., segment: _Optional[_Union[SegmentRef, _Mapping]] = ..., position: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp: _Optional[int] = ..., newest: _Optional[_Iterable[int]] = ...) -> None: ...

class WriteCatalogPageRequest(_message.Message):
    __slots__ = ("partition", "epoch", "segments")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    epoch: int
    segments: _containers.RepeatedCompositeFieldContainer[_catalog_pb2.CatalogSegment]
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., epoch: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[_catalog_pb2.CatalogSegment, _Mapping]]] = ...) -> None: ...

class WriteCatalogPageReply(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class RewriteRequest(_message.Message):
    __slots__ = ("partition", "epoch", "attempt", "steps", "target_bytes", "compaction", "bytes_per_second")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TARGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    epoch: int
    attempt: int
    steps: _containers.RepeatedCompositeFieldContainer[RewriteStep]
    target_bytes: int
    compaction: CompactionRules
    bytes_per_second: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[RewriteStep, _Mapping]]] = ..., target_bytes: _Optional[int] = ..., compaction: _Optional[_Union[CompactionRules, _Mapping]] = ..., bytes_per_second: _Optional[int] = ...) -> None: ...

class RewriteStep(_message.Message):
    __slots__ = ("inputs",)
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[RewriteInput]
    def __init__(self, inputs: _Optional[_Iterable[_Union[RewriteInput, _Mapping]]] = ...) -> None: ...

class RewriteInput(_message.Message):
    __slots__ = ("start", "end", "rewritten", "epoch", "size")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    rewritten: _rewritten_pb2.RewrittenEntry
    epoch: int
    size: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., rewritten: _Optional[_Union[_rewritten_pb2.RewrittenEntry, _Mapping]] = ..., epoch: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class CompactionRules(_message.Message):
    __slots__ = ("dirty", "end", "resumed", "now_ms", "horizon_ms", "memory_bytes", "batch_bytes", "producers")
    DIRTY_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    HORIZON_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    dirty: _containers.RepeatedCompositeFieldContainer[RewriteInput]
    end: int
    resumed: bool
    now_ms: int
    horizon_ms: int
    memory_bytes: int
    batch_bytes: int
    producers: _containers.RepeatedCompositeFieldContainer[LastBatch]
    def __init__(self, dirty: _Optional[_Iterable[_Union[RewriteInput, _Mapping]]] = ..., end: _Optional[int] = ..., resumed: _Optional[bool] = ..., now_ms: _Optional[int] = ..., horizon_ms: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., batch_bytes: _Optional[int] = ..., producers: _Optional[_Iterable[_Union[LastBatch, _Mapping]]] = ...) -> None: ...

class LastBatch(_message.Message):
    __slots__ = ("producer_id", "epoch", "last_offset")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    last_offset: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_offset: _Optional[int] = ...) -> None: ...

class RewriteEvent(_message.Message):
    __slots__ = ("objects_read", "objects_total", "step", "status", "detail")
    OBJECTS_READ_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    objects_read: int
    objects_total: int
    step: RewrittenStep
    status: _common_pb2.Status
    detail: str
    def __init__(self, objects_read: _Optional[int] = ..., objects_total: _Optional[int] = ..., step: _Optional[_Union[RewrittenStep, _Mapping]] = ..., status: _Optional[_Union[_common_pb2.Status, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class RewrittenStep(_message.Message):
    __slots__ = ("start", "end", "entries", "pass_end", "bytes_in", "bytes_out", "records_in", "records_out")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PASS_END_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_IN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_OUT_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    entries: _containers.RepeatedCompositeFieldContainer[_rewritten_pb2.RewrittenEntry]
    pass_end: int
    bytes_in: int
    bytes_out: int
    records_in: int
    records_out: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[_rewritten_pb2.RewrittenEntry, _Mapping]]] = ..., pass_end: _Optional[int] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., records_in: _Optional[int] = ..., records_out: _Optional[int] = ...) -> None: ...
