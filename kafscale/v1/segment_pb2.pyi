from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SegmentContents(_message.Message):
    __slots__ = ("object", "bytes", "rewritten", "header", "footer", "batch_count", "first_batch", "batches", "index_object", "has_index", "index_interval", "index_entry_count", "index_entries", "faults")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    REWRITTEN_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FOOTER_FIELD_NUMBER: _ClassVar[int]
    BATCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_BATCH_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    INDEX_OBJECT_FIELD_NUMBER: _ClassVar[int]
    HAS_INDEX_FIELD_NUMBER: _ClassVar[int]
    INDEX_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    INDEX_ENTRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    INDEX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    object: str
    bytes: int
    rewritten: bool
    header: SegmentHeaderFields
    footer: SegmentFooterFields
    batch_count: int
    first_batch: int
    batches: _containers.RepeatedCompositeFieldContainer[StoredBatch]
    index_object: str
    has_index: bool
    index_interval: int
    index_entry_count: int
    index_entries: _containers.RepeatedCompositeFieldContainer[IndexedBatch]
    faults: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, object: _Optional[str] = ..., bytes: _Optional[int] = ..., rewritten: _Optional[bool] = ..., header: _Optional[_Union[SegmentHeaderFields, _Mapping]] = ..., footer: _Optional[_Union[SegmentFooterFields, _Mapping]] = ..., batch_count: _Optional[int] = ..., first_batch: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[StoredBatch, _Mapping]]] = ..., index_object: _Optional[str] = ..., has_index: _Optional[bool] = ..., index_interval: _Optional[int] = ..., index_entry_count: _Optional[int] = ..., index_entries: _Optional[_Iterable[_Union[IndexedBatch, _Mapping]]] = ..., faults: _Optional[_Iterable[str]] = ...) -> None: ...

class SegmentHeaderFields(_message.Message):
    __slots__ = ("flags", "base_offset", "messages", "created_ms", "epoch")
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    flags: int
    base_offset: int
    messages: int
    created_ms: int
    epoch: int
    def __init__(self, flags: _Optional[int] = ..., base_offset: _Optional[int] = ..., messages: _Optional[int] = ..., created_ms: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class SegmentFooterFields(_message.Message):
    __slots__ = ("last_offset", "crc", "crc_correct")
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    CRC_CORRECT_FIELD_NUMBER: _ClassVar[int]
    last_offset: int
    crc: int
    crc_correct: bool
    def __init__(self, last_offset: _Optional[int] = ..., crc: _Optional[int] = ..., crc_correct: _Optional[bool] = ...) -> None: ...

class StoredBatch(_message.Message):
    __slots__ = ("position", "bytes", "base_offset", "last_offset", "records", "codec", "epoch", "base_timestamp", "max_timestamp", "log_append_time", "producer_id", "producer_epoch", "base_sequence", "transactional", "control", "horizon")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LOG_APPEND_TIME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    position: int
    bytes: int
    base_offset: int
    last_offset: int
    records: int
    codec: str
    epoch: int
    base_timestamp: int
    max_timestamp: int
    log_append_time: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    horizon: bool
    def __init__(self, position: _Optional[int] = ..., bytes: _Optional[int] = ..., base_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., records: _Optional[int] = ..., codec: _Optional[str] = ..., epoch: _Optional[int] = ..., base_timestamp: _Optional[int] = ..., max_timestamp: _Optional[int] = ..., log_append_time: _Optional[bool] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., base_sequence: _Optional[int] = ..., transactional: _Optional[bool] = ..., control: _Optional[bool] = ..., horizon: _Optional[bool] = ...) -> None: ...

class IndexedBatch(_message.Message):
    __slots__ = ("offset", "position")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    offset: int
    position: int
    def __init__(self, offset: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...
