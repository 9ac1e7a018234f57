from kafscale.v1 import coordinator_pb2 as _coordinator_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupShard(_message.Message):
    __slots__ = ("format", "epoch", "owner")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    format: int
    epoch: int
    owner: str
    def __init__(self, format: _Optional[int] = ..., epoch: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class GroupClock(_message.Message):
    __slots__ = ("format", "now_ms")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    format: int
    now_ms: int
    def __init__(self, format: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("format", "generation", "protocol_type", "protocol", "leader", "members", "assignments_version", "assignments_chunks", "changed_ms")
    class MemberRef(_message.Message):
        __slots__ = ("member_id", "version")
        MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        member_id: str
        version: str
        def __init__(self, member_id: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_MS_FIELD_NUMBER: _ClassVar[int]
    format: int
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: _containers.RepeatedCompositeFieldContainer[Group.MemberRef]
    assignments_version: str
    assignments_chunks: int
    changed_ms: int
    def __init__(self, format: _Optional[int] = ..., generation: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., leader: _Optional[str] = ..., members: _Optional[_Iterable[_Union[Group.MemberRef, _Mapping]]] = ..., assignments_version: _Optional[str] = ..., assignments_chunks: _Optional[int] = ..., changed_ms: _Optional[int] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("format", "instance_id", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms", "protocols")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    format: int
    instance_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: _containers.RepeatedCompositeFieldContainer[_coordinator_pb2.GroupProtocol]
    def __init__(self, format: _Optional[int] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., protocols: _Optional[_Iterable[_Union[_coordinator_pb2.GroupProtocol, _Mapping]]] = ...) -> None: ...

class GroupAssignments(_message.Message):
    __slots__ = ("assignments",)
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    assignments: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, assignments: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GroupAssignmentsChunk(_message.Message):
    __slots__ = ("format", "part")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    format: int
    part: bytes
    def __init__(self, format: _Optional[int] = ..., part: _Optional[bytes] = ...) -> None: ...

class GroupOffset(_message.Message):
    __slots__ = ("format", "offset", "leader_epoch", "metadata", "committed_ms", "expires_ms", "topic_id")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    format: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int
    topic_id: bytes
    def __init__(self, format: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ..., committed_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ..., topic_id: _Optional[bytes] = ...) -> None: ...
