from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupError(_message.Message):
    __slots__ = ()
    class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[GroupError.Code]
        UNKNOWN_TOPIC_OR_PARTITION: _ClassVar[GroupError.Code]
        OFFSET_METADATA_TOO_LARGE: _ClassVar[GroupError.Code]
        COORDINATOR_LOAD_IN_PROGRESS: _ClassVar[GroupError.Code]
        COORDINATOR_NOT_AVAILABLE: _ClassVar[GroupError.Code]
        NOT_COORDINATOR: _ClassVar[GroupError.Code]
        ILLEGAL_GENERATION: _ClassVar[GroupError.Code]
        INCONSISTENT_GROUP_PROTOCOL: _ClassVar[GroupError.Code]
        INVALID_GROUP_ID: _ClassVar[GroupError.Code]
        UNKNOWN_MEMBER_ID: _ClassVar[GroupError.Code]
        INVALID_SESSION_TIMEOUT: _ClassVar[GroupError.Code]
        REBALANCE_IN_PROGRESS: _ClassVar[GroupError.Code]
        INVALID_REQUEST: _ClassVar[GroupError.Code]
        NON_EMPTY_GROUP: _ClassVar[GroupError.Code]
        GROUP_ID_NOT_FOUND: _ClassVar[GroupError.Code]
        MEMBER_ID_REQUIRED: _ClassVar[GroupError.Code]
        GROUP_MAX_SIZE_REACHED: _ClassVar[GroupError.Code]
        FENCED_INSTANCE_ID: _ClassVar[GroupError.Code]
        GROUP_SUBSCRIBED_TO_TOPIC: _ClassVar[GroupError.Code]
        UNSTABLE_OFFSET_COMMIT: _ClassVar[GroupError.Code]
    NONE: GroupError.Code
    UNKNOWN_TOPIC_OR_PARTITION: GroupError.Code
    OFFSET_METADATA_TOO_LARGE: GroupError.Code
    COORDINATOR_LOAD_IN_PROGRESS: GroupError.Code
    COORDINATOR_NOT_AVAILABLE: GroupError.Code
    NOT_COORDINATOR: GroupError.Code
    ILLEGAL_GENERATION: GroupError.Code
    INCONSISTENT_GROUP_PROTOCOL: GroupError.Code
    INVALID_GROUP_ID: GroupError.Code
    UNKNOWN_MEMBER_ID: GroupError.Code
    INVALID_SESSION_TIMEOUT: GroupError.Code
    REBALANCE_IN_PROGRESS: GroupError.Code
    INVALID_REQUEST: GroupError.Code
    NON_EMPTY_GROUP: GroupError.Code
    GROUP_ID_NOT_FOUND: GroupError.Code
    MEMBER_ID_REQUIRED: GroupError.Code
    GROUP_MAX_SIZE_REACHED: GroupError.Code
    FENCED_INSTANCE_ID: GroupError.Code
    GROUP_SUBSCRIBED_TO_TOPIC: GroupError.Code
    UNSTABLE_OFFSET_COMMIT: GroupError.Code
    def __init__(self) -> None: ...

class GroupProtocol(_message.Message):
    __slots__ = ("name", "metadata")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    metadata: bytes
    def __init__(self, name: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("group", "member_id", "instance_id", "protocol_type", "protocols", "session_timeout_ms", "rebalance_timeout_ms", "client_id", "client_host", "reason", "member_id_required", "skips_assignment")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    SKIPS_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    instance_id: str
    protocol_type: str
    protocols: _containers.RepeatedCompositeFieldContainer[GroupProtocol]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    reason: str
    member_id_required: bool
    skips_assignment: bool
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocols: _Optional[_Iterable[_Union[GroupProtocol, _Mapping]]] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., reason: _Optional[str] = ..., member_id_required: _Optional[bool] = ..., skips_assignment: _Optional[bool] = ...) -> None: ...

class JoinGroupReply(_message.Message):
    __slots__ = ("error", "owner", "generation", "protocol_type", "protocol", "leader", "member_id", "skip_assignment", "members")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    SKIP_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    error: GroupError.Code
    owner: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    skip_assignment: bool
    members: _containers.RepeatedCompositeFieldContainer[JoinedMember]
    def __init__(self, error: _Optional[_Union[GroupError.Code, str]] = ..., owner: _Optional[str] = ..., generation: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., leader: _Optional[str] = ..., member_id: _Optional[str] = ..., skip_assignment: _Optional[bool] = ..., members: _Optional[_Iterable[_Union[JoinedMember, _Mapping]]] = ...) -> None: ...

class JoinedMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "metadata")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    metadata: bytes
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class SyncGroupRequest(_message.Message):
    __slots__ = ("group", "member_id", "instance_id", "generation", "protocol_type", "protocol", "assignments")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    instance_id: str
    generation: int
    protocol_type: str
    protocol: str
    assignments: _containers.RepeatedCompositeFieldContainer[MemberAssignment]
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., generation: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., assignments: _Optional[_Iterable[_Union[MemberAssignment, _Mapping]]] = ...) -> None: ...

class MemberAssignment(_message.Message):
    __slots__ = ("member_id", "assignment")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    assignment: bytes
    def __init__(self, member_id: _Optional[str] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class SyncGroupReply(_message.Message):
    __slots__ = ("error", "owner", "protocol_type", "protocol", "assignment")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    error: GroupError.Code
    owner: str
    protocol_type: str
    protocol: str
    assignment: bytes
    def __init__(self, error: _Optional[_Union[GroupError.Code, str]] = ..., owner: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("heartbeats",)
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    heartbeats: _containers.RepeatedCompositeFieldContainer[MemberHeartbeat]
    def __init__(self, heartbeats: _Optional[_Iterable[_Union[MemberHeartbeat, _Mapping]]] = ...) -> None: ...

class MemberHeartbeat(_message.Message):
    __slots__ = ("group", "member_id", "instance_id", "generation")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    instance_id: str
    generation: int
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[HeartbeatResult]
    def __init__(self, results: _Optional[_Iterable[_Union[HeartbeatResult, _Mapping]]] = ...) -> None: ...

class HeartbeatResult(_message.Message):
    __slots__ = ("error", "owner")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    error: GroupError.Code
    owner: str
    def __init__(self, error: _Optional[_Union[GroupError.Code, str]] = ..., owner: _Optional[str] = ...) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("group", "members")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    members: _containers.RepeatedCompositeFieldContainer[LeavingMember]
    def __init__(self, group: _Optional[str] = ..., members: _Optional[_Iterable[_Union[LeavingMember, _Mapping]]] = ...) -> None: ...

class LeavingMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "reason")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    reason: str
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LeaveGroupReply(_message.Message):
    __slots__ = ("error", "owner", "members")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    error: GroupError.Code
    owner: str
    members: _containers.RepeatedCompositeFieldContainer[LeftMember]
    def __init__(self, error: _Optional[_Union[GroupError.Code, str]] = ..., owner: _Optional[str] = ..., members: _Optional[_Iterable[_Union[LeftMember, _Mapping]]] = ...) -> None: ...

class LeftMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "error")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    error: GroupError.Code
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., error: _Optional[_Union[GroupError.Code, str]] = ...) -> None: ...

class OffsetCommitRequest(_message.Message):
    __slots__ = ("group", "member_id", "instance_id", "generation", "retention_ms", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    instance_id: str
    generation: int
    retention_ms: int
    offsets: _containers.RepeatedCompositeFieldContainer[OffsetToCommit]
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., generation: _Optional[int] = ..., retention_ms: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[OffsetToCommit, _Mapping]]] = ...) -> None: ...

class OffsetToCommit(_message.Message):
    __slots__ = ("topic", "partition", "offset", "leader_epoch", "metadata", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class OffsetCommitReply(_message.Message):
    __slots__ = ("error", "owner", "errors")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    error: GroupError.Code
    owner: str
    errors: _containers.RepeatedScalarFieldContainer[GroupError.Code]
    def __init__(self, error: _Optional[_Union[GroupError.Code, str]] = ..., owner: _Optional[str] = ..., errors: _Optional[_Iterable[_Union[GroupError.Code, str]]] = ...) -> None: ...

class OffsetFetchRequest(_message.Message):
    __slots__ = ("groups", "require_stable")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_STABLE_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupOffsetsQuery]
    require_stable: bool
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupOffsetsQuery, _Mapping]]] = ..., require_stable: _Optional[bool] = ...) -> None: ...

class GroupOffsetsQuery(_message.Message):
    __slots__ = ("group", "all", "partitions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    all: bool
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, group: _Optional[str] = ..., all: _Optional[bool] = ..., partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class OffsetFetchReply(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupOffsets]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupOffsets, _Mapping]]] = ...) -> None: ...

class GroupOffsets(_message.Message):
    __slots__ = ("error", "owner", "group", "offsets")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    error: GroupError.Code
    owner: str
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[FetchedOffset]
    def __init__(self, error: _Optional[_Union[GroupError.Code, str]] = ..., owner: _Optional[str] = ..., group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[FetchedOffset, _Mapping]]] = ...) -> None: ...

class FetchedOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "leader_epoch", "metadata", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class OffsetDeleteRequest(_message.Message):
    __slots__ = ("group", "partitions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, group: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...

class OffsetDeleteReply(_message.Message):
    __slots__ = ("error", "owner", "errors")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    error: GroupError.Code
    owner: str
    errors: _containers.RepeatedScalarFieldContainer[GroupError.Code]
    def __init__(self, error: _Optional[_Union[GroupError.Code, str]] = ..., owner: _Optional[str] = ..., errors: _Optional[_Iterable[_Union[GroupError.Code, str]]] = ...) -> None: ...

class DescribeGroupsRequest(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeGroupsReply(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[DescribedGroup]
    def __init__(self, groups: _Optional[_Iterable[_Union[DescribedGroup, _Mapping]]] = ...) -> None: ...

class DescribedGroup(_message.Message):
    __slots__ = ("error", "owner", "group", "state", "protocol_type", "protocol", "members")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    error: GroupError.Code
    owner: str
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: _containers.RepeatedCompositeFieldContainer[DescribedMember]
    def __init__(self, error: _Optional[_Union[GroupError.Code, str]] = ..., owner: _Optional[str] = ..., group: _Optional[str] = ..., state: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., members: _Optional[_Iterable[_Union[DescribedMember, _Mapping]]] = ...) -> None: ...

class DescribedMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_id", "client_host", "metadata", "assignment")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., metadata: _Optional[bytes] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("states", "types")
    STATES_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, states: _Optional[_Iterable[str]] = ..., types: _Optional[_Iterable[str]] = ...) -> None: ...

class ListGroupsReply(_message.Message):
    __slots__ = ("groups", "shards")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[ListedGroup]
    shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, groups: _Optional[_Iterable[_Union[ListedGroup, _Mapping]]] = ..., shards: _Optional[_Iterable[int]] = ...) -> None: ...

class ListedGroup(_message.Message):
    __slots__ = ("group", "protocol_type", "state", "type")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    group: str
    protocol_type: str
    state: str
    type: str
    def __init__(self, group: _Optional[str] = ..., protocol_type: _Optional[str] = ..., state: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...

class DeleteGroupsRequest(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteGroupsReply(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[DeletedGroup]
    def __init__(self, groups: _Optional[_Iterable[_Union[DeletedGroup, _Mapping]]] = ...) -> None: ...

class DeletedGroup(_message.Message):
    __slots__ = ("error", "owner", "group")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    error: GroupError.Code
    owner: str
    group: str
    def __init__(self, error: _Optional[_Union[GroupError.Code, str]] = ..., owner: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...
