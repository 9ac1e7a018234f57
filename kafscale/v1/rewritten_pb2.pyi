from kafscale.v1 import metadata_pb2 as _metadata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RewrittenEntry(_message.Message):
    __slots__ = ("next_offset", "epoch", "attempt", "base_offset", "size", "records", "control_records", "min_timestamp", "max_timestamp", "created_ms", "crc")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MIN_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    epoch: int
    attempt: int
    base_offset: int
    size: int
    records: int
    control_records: int
    min_timestamp: int
    max_timestamp: int
    created_ms: int
    crc: int
    def __init__(self, next_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., base_offset: _Optional[int] = ..., size: _Optional[int] = ..., records: _Optional[int] = ..., control_records: _Optional[int] = ..., min_timestamp: _Optional[int] = ..., max_timestamp: _Optional[int] = ..., created_ms: _Optional[int] = ..., crc: _Optional[int] = ...) -> None: ...

class CompactionPass(_message.Message):
    __slots__ = ("end", "next_offset")
    END_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    end: int
    next_offset: int
    def __init__(self, end: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class RewrittenRoot(_message.Message):
    __slots__ = ("format", "topic_id", "number", "start", "entries", "epochs", "first_dirty", "compaction", "obsolete", "crc")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    FIRST_DIRTY_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_FIELD_NUMBER: _ClassVar[int]
    OBSOLETE_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    format: int
    topic_id: bytes
    number: int
    start: int
    entries: _containers.RepeatedCompositeFieldContainer[RewrittenEntry]
    epochs: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.EpochHistory.Entry]
    first_dirty: int
    compaction: CompactionPass
    obsolete: _containers.RepeatedScalarFieldContainer[str]
    crc: int
    def __init__(self, format: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., number: _Optional[int] = ..., start: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[RewrittenEntry, _Mapping]]] = ..., epochs: _Optional[_Iterable[_Union[_metadata_pb2.EpochHistory.Entry, _Mapping]]] = ..., first_dirty: _Optional[int] = ..., compaction: _Optional[_Union[CompactionPass, _Mapping]] = ..., obsolete: _Optional[_Iterable[str]] = ..., crc: _Optional[int] = ...) -> None: ...
