from kafscale.v1 import common_pb2 as _common_pb2
from kafscale.v1 import metadata_pb2 as _metadata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IntakeEntry(_message.Message):
    __slots__ = ("partition", "epoch", "base_offset", "next_offset", "position", "size", "crc", "sinks")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    SINKS_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.PartitionRef
    epoch: int
    base_offset: int
    next_offset: int
    position: int
    size: int
    crc: int
    sinks: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.SinkProgress]
    def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., epoch: _Optional[int] = ..., base_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., position: _Optional[int] = ..., size: _Optional[int] = ..., crc: _Optional[int] = ..., sinks: _Optional[_Iterable[_Union[_metadata_pb2.SinkProgress, _Mapping]]] = ...) -> None: ...

class IntakeTable(_message.Message):
    __slots__ = ("namespace", "run_id", "entries")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    run_id: str
    entries: _containers.RepeatedCompositeFieldContainer[IntakeEntry]
    def __init__(self, namespace: _Optional[str] = ..., run_id: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[IntakeEntry, _Mapping]]] = ...) -> None: ...
