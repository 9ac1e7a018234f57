from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[Status]
    NOT_OWNER: _ClassVar[Status]
    UNKNOWN_TOPIC: _ClassVar[Status]
    TOPIC_ID_MISMATCH: _ClassVar[Status]
    BUFFER_FULL: _ClassVar[Status]
    OFFSET_OUT_OF_RANGE: _ClassVar[Status]
    DAMAGED: _ClassVar[Status]
    UNAVAILABLE: _ClassVar[Status]
    REFUSED_BEHIND: _ClassVar[Status]
    FENCED_EPOCH: _ClassVar[Status]
    UNKNOWN_EPOCH: _ClassVar[Status]
    INVALID: _ClassVar[Status]
    TOO_LARGE: _ClassVar[Status]
    OUT_OF_ORDER_SEQUENCE: _ClassVar[Status]
    UNKNOWN_PRODUCER: _ClassVar[Status]
    FENCED_PRODUCER: _ClassVar[Status]
OK: Status
NOT_OWNER: Status
UNKNOWN_TOPIC: Status
TOPIC_ID_MISMATCH: Status
BUFFER_FULL: Status
OFFSET_OUT_OF_RANGE: Status
DAMAGED: Status
UNAVAILABLE: Status
REFUSED_BEHIND: Status
FENCED_EPOCH: Status
UNKNOWN_EPOCH: Status
INVALID: Status
TOO_LARGE: Status
OUT_OF_ORDER_SEQUENCE: Status
UNKNOWN_PRODUCER: Status
FENCED_PRODUCER: Status

class PartitionRef(_message.Message):
    __slots__ = ("topic", "topic_id", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: bytes
    partition: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...
