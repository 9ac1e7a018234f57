from kafscale.v1 import process_pb2 as _process_pb2
from kafscale.v1 import segment_pb2 as _segment_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClusterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterStatusReply(_message.Message):
    __slots__ = ("cluster_id", "namespace", "topics", "partitions", "partitions_without_owner", "members", "state_format")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_WITHOUT_OWNER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    namespace: str
    topics: int
    partitions: int
    partitions_without_owner: int
    members: _containers.RepeatedCompositeFieldContainer[ClusterMember]
    state_format: int
    def __init__(self, cluster_id: _Optional[str] = ..., namespace: _Optional[str] = ..., topics: _Optional[int] = ..., partitions: _Optional[int] = ..., partitions_without_owner: _Optional[int] = ..., members: _Optional[_Iterable[_Union[ClusterMember, _Mapping]]] = ..., state_format: _Optional[int] = ...) -> None: ...

class ClusterMember(_message.Message):
    __slots__ = ("service", "run_id", "address", "version", "started_ms", "leaving", "node_id", "listeners", "health", "detail", "owned", "draining", "intake", "known_state_format", "state_format")
    class Health(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[ClusterMember.Health]
        READY: _ClassVar[ClusterMember.Health]
        NOT_READY: _ClassVar[ClusterMember.Health]
        UNREACHABLE: _ClassVar[ClusterMember.Health]
    UNKNOWN: ClusterMember.Health
    READY: ClusterMember.Health
    NOT_READY: ClusterMember.Health
    UNREACHABLE: ClusterMember.Health
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    INTAKE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_STATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    STATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    service: str
    run_id: str
    address: str
    version: str
    started_ms: int
    leaving: bool
    node_id: int
    listeners: _containers.RepeatedScalarFieldContainer[str]
    health: ClusterMember.Health
    detail: str
    owned: int
    draining: bool
    intake: bool
    known_state_format: int
    state_format: int
    def __init__(self, service: _Optional[str] = ..., run_id: _Optional[str] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., started_ms: _Optional[int] = ..., leaving: _Optional[bool] = ..., node_id: _Optional[int] = ..., listeners: _Optional[_Iterable[str]] = ..., health: _Optional[_Union[ClusterMember.Health, str]] = ..., detail: _Optional[str] = ..., owned: _Optional[int] = ..., draining: _Optional[bool] = ..., intake: _Optional[bool] = ..., known_state_format: _Optional[int] = ..., state_format: _Optional[int] = ...) -> None: ...

class ClusterTotalsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterTotalsReply(_message.Message):
    __slots__ = ("instances",)
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    instances: _containers.RepeatedCompositeFieldContainer[InstanceTotals]
    def __init__(self, instances: _Optional[_Iterable[_Union[InstanceTotals, _Mapping]]] = ...) -> None: ...

class InstanceTotals(_message.Message):
    __slots__ = ("services", "address", "error", "totals")
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    services: _containers.RepeatedScalarFieldContainer[str]
    address: str
    error: str
    totals: _process_pb2.ProcessTotals
    def __init__(self, services: _Optional[_Iterable[str]] = ..., address: _Optional[str] = ..., error: _Optional[str] = ..., totals: _Optional[_Union[_process_pb2.ProcessTotals, _Mapping]] = ...) -> None: ...

class TopicStatus(_message.Message):
    __slots__ = ("name", "id", "partitions", "configs", "created_ms", "deleting", "cleanup_policy")
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
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    DELETING_FIELD_NUMBER: _ClassVar[int]
    CLEANUP_POLICY_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    partitions: int
    configs: _containers.ScalarMap[str, str]
    created_ms: int
    deleting: bool
    cleanup_policy: str
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., partitions: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ..., created_ms: _Optional[int] = ..., deleting: _Optional[bool] = ..., cleanup_policy: _Optional[str] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsReply(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicStatus]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicStatus, _Mapping]]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "configs", "validate_only")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    configs: _containers.ScalarMap[str, str]
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class CreateTopicReply(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicStatus
    def __init__(self, topic: _Optional[_Union[TopicStatus, _Mapping]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeTopicReply(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicStatus
    def __init__(self, topic: _Optional[_Union[TopicStatus, _Mapping]] = ...) -> None: ...

class GrowTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "validate_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class GrowTopicReply(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: TopicStatus
    def __init__(self, topic: _Optional[_Union[TopicStatus, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPartitionsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ListPartitionsReply(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStatus]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionStatus, _Mapping]]] = ...) -> None: ...

class PartitionStatus(_message.Message):
    __slots__ = ("topic", "partition", "owner", "owner_run", "epoch", "log_start", "high_watermark", "bytes", "segments", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    OWNER_RUN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    owner: str
    owner_run: str
    epoch: int
    log_start: int
    high_watermark: int
    bytes: int
    segments: int
    error: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., owner: _Optional[str] = ..., owner_run: _Optional[str] = ..., epoch: _Optional[int] = ..., log_start: _Optional[int] = ..., high_watermark: _Optional[int] = ..., bytes: _Optional[int] = ..., segments: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class ListSegmentsRequest(_message.Message):
    __slots__ = ("topic", "partition", "start_offset", "limit", "verify")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    start_offset: int
    limit: int
    verify: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., limit: _Optional[int] = ..., verify: _Optional[bool] = ...) -> None: ...

class ListSegmentsReply(_message.Message):
    __slots__ = ("segments", "next_offset", "high_watermark")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentStatus]
    next_offset: int
    high_watermark: int
    def __init__(self, segments: _Optional[_Iterable[_Union[SegmentStatus, _Mapping]]] = ..., next_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class SegmentStatus(_message.Message):
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

class DescribeStoredSegmentRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset", "first_batch", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_BATCH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    first_batch: int
    limit: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., first_batch: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class DescribeStoredSegmentReply(_message.Message):
    __slots__ = ("contents",)
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    contents: _segment_pb2.SegmentContents
    def __init__(self, contents: _Optional[_Union[_segment_pb2.SegmentContents, _Mapping]] = ...) -> None: ...

class FlushTopicsRequest(_message.Message):
    __slots__ = ("topics", "partition")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    partition: int
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., partition: _Optional[int] = ...) -> None: ...

class FlushTopicsReply(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[FlushedPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[FlushedPartition, _Mapping]]] = ...) -> None: ...

class FlushedPartition(_message.Message):
    __slots__ = ("topic", "partition", "high_watermark", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    high_watermark: int
    error: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., high_watermark: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class DescribeConfigsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DescribeConfigsReply(_message.Message):
    __slots__ = ("configs",)
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    configs: _containers.RepeatedCompositeFieldContainer[TopicConfigValue]
    def __init__(self, configs: _Optional[_Iterable[_Union[TopicConfigValue, _Mapping]]] = ...) -> None: ...

class TopicConfigValue(_message.Message):
    __slots__ = ("name", "value", "source", "documentation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    documentation: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ..., documentation: _Optional[str] = ...) -> None: ...

class AlterConfigsRequest(_message.Message):
    __slots__ = ("topic", "set", "unset", "validate_only")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    set: _containers.ScalarMap[str, str]
    unset: _containers.RepeatedScalarFieldContainer[str]
    validate_only: bool
    def __init__(self, topic: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., unset: _Optional[_Iterable[str]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class AlterConfigsReply(_message.Message):
    __slots__ = ("cleanup_policy",)
    CLEANUP_POLICY_FIELD_NUMBER: _ClassVar[int]
    cleanup_policy: str
    def __init__(self, cleanup_policy: _Optional[str] = ...) -> None: ...

class ListConsumerGroupsRequest(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, states: _Optional[_Iterable[str]] = ...) -> None: ...

class ListConsumerGroupsReply(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[ConsumerGroupStatus]
    def __init__(self, groups: _Optional[_Iterable[_Union[ConsumerGroupStatus, _Mapping]]] = ...) -> None: ...

class ConsumerGroupStatus(_message.Message):
    __slots__ = ("group", "state", "protocol_type", "coordinator")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    group: str
    state: str
    protocol_type: str
    coordinator: str
    def __init__(self, group: _Optional[str] = ..., state: _Optional[str] = ..., protocol_type: _Optional[str] = ..., coordinator: _Optional[str] = ...) -> None: ...

class DescribeConsumerGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DescribeConsumerGroupReply(_message.Message):
    __slots__ = ("group", "protocol", "members", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: ConsumerGroupStatus
    protocol: str
    members: _containers.RepeatedCompositeFieldContainer[ConsumerGroupMember]
    offsets: _containers.RepeatedCompositeFieldContainer[ConsumerGroupOffset]
    def __init__(self, group: _Optional[_Union[ConsumerGroupStatus, _Mapping]] = ..., protocol: _Optional[str] = ..., members: _Optional[_Iterable[_Union[ConsumerGroupMember, _Mapping]]] = ..., offsets: _Optional[_Iterable[_Union[ConsumerGroupOffset, _Mapping]]] = ...) -> None: ...

class ConsumerGroupMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_id", "client_host", "assigned")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    assigned: _containers.RepeatedCompositeFieldContainer[AssignedPartitions]
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., assigned: _Optional[_Iterable[_Union[AssignedPartitions, _Mapping]]] = ...) -> None: ...

class AssignedPartitions(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class ConsumerGroupOffset(_message.Message):
    __slots__ = ("topic", "partition", "committed", "high_watermark", "lag", "member_id", "metadata")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    committed: int
    high_watermark: int
    lag: int
    member_id: str
    metadata: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., committed: _Optional[int] = ..., high_watermark: _Optional[int] = ..., lag: _Optional[int] = ..., member_id: _Optional[str] = ..., metadata: _Optional[str] = ...) -> None: ...

class ResetOffsetsRequest(_message.Message):
    __slots__ = ("group", "topics", "earliest", "latest", "offset", "timestamp_ms", "shift_by", "validate_only")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    SHIFT_BY_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedCompositeFieldContainer[ResetTopic]
    earliest: bool
    latest: bool
    offset: int
    timestamp_ms: int
    shift_by: int
    validate_only: bool
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[ResetTopic, _Mapping]]] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., shift_by: _Optional[int] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class ResetTopic(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class ResetOffsetsReply(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[ResetOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[ResetOffset, _Mapping]]] = ...) -> None: ...

class ResetOffset(_message.Message):
    __slots__ = ("topic", "partition", "before", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    before: int
    after: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., before: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class DeleteConsumerGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DeleteConsumerGroupReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainInstanceRequest(_message.Message):
    __slots__ = ("instance",)
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    def __init__(self, instance: _Optional[str] = ...) -> None: ...

class DrainProgress(_message.Message):
    __slots__ = ("service", "address", "run_id", "total", "remaining", "done")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    service: str
    address: str
    run_id: str
    total: int
    remaining: int
    done: bool
    def __init__(self, service: _Optional[str] = ..., address: _Optional[str] = ..., run_id: _Optional[str] = ..., total: _Optional[int] = ..., remaining: _Optional[int] = ..., done: _Optional[bool] = ...) -> None: ...

class CancelDrainRequest(_message.Message):
    __slots__ = ("instance",)
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    def __init__(self, instance: _Optional[str] = ...) -> None: ...

class CancelDrainReply(_message.Message):
    __slots__ = ("service", "address", "run_id")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    service: str
    address: str
    run_id: str
    def __init__(self, service: _Optional[str] = ..., address: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class FinalizeUpgradeRequest(_message.Message):
    __slots__ = ("state_format", "validate_only")
    STATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    state_format: int
    validate_only: bool
    def __init__(self, state_format: _Optional[int] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class FinalizeUpgradeReply(_message.Message):
    __slots__ = ("before", "state_format")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    STATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    before: int
    state_format: int
    def __init__(self, before: _Optional[int] = ..., state_format: _Optional[int] = ...) -> None: ...

class RebuildIndexesRequest(_message.Message):
    __slots__ = ("topic", "partition", "start_offset", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    start_offset: int
    limit: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class WatchClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterChange(_message.Message):
    __slots__ = ("time_ms", "member", "owner")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    member: MemberChange
    owner: OwnerChange
    def __init__(self, time_ms: _Optional[int] = ..., member: _Optional[_Union[MemberChange, _Mapping]] = ..., owner: _Optional[_Union[OwnerChange, _Mapping]] = ...) -> None: ...

class MemberChange(_message.Message):
    __slots__ = ("kind", "member")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PRESENT: _ClassVar[MemberChange.Kind]
        JOINED: _ClassVar[MemberChange.Kind]
        CHANGED: _ClassVar[MemberChange.Kind]
        HEALTH: _ClassVar[MemberChange.Kind]
        LEFT: _ClassVar[MemberChange.Kind]
    PRESENT: MemberChange.Kind
    JOINED: MemberChange.Kind
    CHANGED: MemberChange.Kind
    HEALTH: MemberChange.Kind
    LEFT: MemberChange.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    kind: MemberChange.Kind
    member: ClusterMember
    def __init__(self, kind: _Optional[_Union[MemberChange.Kind, str]] = ..., member: _Optional[_Union[ClusterMember, _Mapping]] = ...) -> None: ...

class OwnerChange(_message.Message):
    __slots__ = ("topic", "partition", "owner", "owner_run", "epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    OWNER_RUN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    owner: str
    owner_run: str
    epoch: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., owner: _Optional[str] = ..., owner_run: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListUsersReply(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[UserStatus]
    def __init__(self, users: _Optional[_Iterable[_Union[UserStatus, _Mapping]]] = ...) -> None: ...

class UserStatus(_message.Message):
    __slots__ = ("name", "credentials")
    class Credential(_message.Message):
        __slots__ = ("mechanism", "iterations", "salt")
        MECHANISM_FIELD_NUMBER: _ClassVar[int]
        ITERATIONS_FIELD_NUMBER: _ClassVar[int]
        SALT_FIELD_NUMBER: _ClassVar[int]
        mechanism: str
        iterations: int
        salt: bytes
        def __init__(self, mechanism: _Optional[str] = ..., iterations: _Optional[int] = ..., salt: _Optional[bytes] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    name: str
    credentials: _containers.RepeatedCompositeFieldContainer[UserStatus.Credential]
    def __init__(self, name: _Optional[str] = ..., credentials: _Optional[_Iterable[_Union[UserStatus.Credential, _Mapping]]] = ...) -> None: ...

class NewCredential(_message.Message):
    __slots__ = ("mechanism", "iterations", "salt", "salted_password")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    SALTED_PASSWORD_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes
    def __init__(self, mechanism: _Optional[str] = ..., iterations: _Optional[int] = ..., salt: _Optional[bytes] = ..., salted_password: _Optional[bytes] = ...) -> None: ...

class SetUserCredentialsRequest(_message.Message):
    __slots__ = ("name", "credentials")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    name: str
    credentials: _containers.RepeatedCompositeFieldContainer[NewCredential]
    def __init__(self, name: _Optional[str] = ..., credentials: _Optional[_Iterable[_Union[NewCredential, _Mapping]]] = ...) -> None: ...

class SetUserCredentialsReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteUserCredentialsRequest(_message.Message):
    __slots__ = ("name", "mechanisms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanisms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., mechanisms: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteUserCredentialsReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AccessRule(_message.Message):
    __slots__ = ("resource_type", "pattern_type", "name", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: str
    pattern_type: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str
    def __init__(self, resource_type: _Optional[str] = ..., pattern_type: _Optional[str] = ..., name: _Optional[str] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[str] = ..., permission: _Optional[str] = ...) -> None: ...

class AccessRuleFilter(_message.Message):
    __slots__ = ("resource_type", "pattern_type", "name", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: str
    pattern_type: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str
    def __init__(self, resource_type: _Optional[str] = ..., pattern_type: _Optional[str] = ..., name: _Optional[str] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[str] = ..., permission: _Optional[str] = ...) -> None: ...

class ListAclsRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: AccessRuleFilter
    def __init__(self, filter: _Optional[_Union[AccessRuleFilter, _Mapping]] = ...) -> None: ...

class ListAclsReply(_message.Message):
    __slots__ = ("acls",)
    ACLS_FIELD_NUMBER: _ClassVar[int]
    acls: _containers.RepeatedCompositeFieldContainer[AccessRule]
    def __init__(self, acls: _Optional[_Iterable[_Union[AccessRule, _Mapping]]] = ...) -> None: ...

class CreateAclsRequest(_message.Message):
    __slots__ = ("acls",)
    ACLS_FIELD_NUMBER: _ClassVar[int]
    acls: _containers.RepeatedCompositeFieldContainer[AccessRule]
    def __init__(self, acls: _Optional[_Iterable[_Union[AccessRule, _Mapping]]] = ...) -> None: ...

class CreateAclsReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteAclsRequest(_message.Message):
    __slots__ = ("filter", "validate_only")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    filter: AccessRuleFilter
    validate_only: bool
    def __init__(self, filter: _Optional[_Union[AccessRuleFilter, _Mapping]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class DeleteAclsReply(_message.Message):
    __slots__ = ("acls",)
    ACLS_FIELD_NUMBER: _ClassVar[int]
    acls: _containers.RepeatedCompositeFieldContainer[AccessRule]
    def __init__(self, acls: _Optional[_Iterable[_Union[AccessRule, _Mapping]]] = ...) -> None: ...

class QuotaPart(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class EntityQuotas(_message.Message):
    __slots__ = ("entity", "limits")
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaPart]
    limits: _containers.ScalarMap[str, float]
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaPart, _Mapping]]] = ..., limits: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuotasReply(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[EntityQuotas]
    def __init__(self, quotas: _Optional[_Iterable[_Union[EntityQuotas, _Mapping]]] = ...) -> None: ...

class SetQuotasRequest(_message.Message):
    __slots__ = ("entity", "set", "remove", "validate_only")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaPart]
    set: _containers.ScalarMap[str, float]
    remove: _containers.RepeatedScalarFieldContainer[str]
    validate_only: bool
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaPart, _Mapping]]] = ..., set: _Optional[_Mapping[str, float]] = ..., remove: _Optional[_Iterable[str]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class SetQuotasReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSinksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSinksReply(_message.Message):
    __slots__ = ("sinks",)
    SINKS_FIELD_NUMBER: _ClassVar[int]
    sinks: _containers.RepeatedCompositeFieldContainer[SinkStatus]
    def __init__(self, sinks: _Optional[_Iterable[_Union[SinkStatus, _Mapping]]] = ...) -> None: ...

class SinkStatus(_message.Message):
    __slots__ = ("name", "epoch", "committed_ms", "once", "remaining", "discarded_epochs", "error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    epoch: int
    committed_ms: int
    once: bool
    remaining: _containers.RepeatedCompositeFieldContainer[SinkPartition]
    discarded_epochs: int
    error: str
    def __init__(self, name: _Optional[str] = ..., epoch: _Optional[int] = ..., committed_ms: _Optional[int] = ..., once: _Optional[bool] = ..., remaining: _Optional[_Iterable[_Union[SinkPartition, _Mapping]]] = ..., discarded_epochs: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class SinkPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...
