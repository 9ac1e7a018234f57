from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CatalogSegment(_message.Message):
    __slots__ = ("base_offset", "next_offset", "size", "records", "min_timestamp", "max_timestamp", "created_ms", "epoch")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MIN_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    next_offset: int
    size: int
    records: int
    min_timestamp: int
    max_timestamp: int
    created_ms: int
    epoch: int
    def __init__(self, base_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., size: _Optional[int] = ..., records: _Optional[int] = ..., min_timestamp: _Optional[int] = ..., max_timestamp: _Optional[int] = ..., created_ms: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class CatalogContent(_message.Message):
    __slots__ = ("topic", "topic_id", "partition", "epoch", "segments")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    epoch: int
    segments: _containers.RepeatedCompositeFieldContainer[CatalogSegment]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., epoch: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[CatalogSegment, _Mapping]]] = ...) -> None: ...

class CatalogPage(_message.Message):
    __slots__ = ("format", "crc", "content")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    format: int
    crc: int
    content: bytes
    def __init__(self, format: _Optional[int] = ..., crc: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...
