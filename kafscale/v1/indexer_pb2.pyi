from kafscale.v1 import catalog_pb2 as _catalog_pb2
from kafscale.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SegmentRef(_message.Message):
    __slots__ = ("topic", "partition", "base_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    base_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., base_offset: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("topic", "partition", "base_offsets", "timestamp", "start_offset", "epochs")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    base_offsets: _containers.RepeatedScalarFieldContainer[int]
    timestamp: int
    start_offset: int
    epochs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., base_offsets: _Optional[_Iterable[int]] = ..., timestamp: _Optional[int] = ..., start_offset: _Optional[int] = ..., epochs: _Optional[_Iterable[int]] = ...) -> None: ...

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
