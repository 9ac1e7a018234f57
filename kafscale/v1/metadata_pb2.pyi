from kafscale.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Cluster(_message.Message):
    __slots__ = ("format", "cluster_id", "epoch_floor", "state_format")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FLOOR_FIELD_NUMBER: _ClassVar[int]
    STATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    format: int
    cluster_id: str
    epoch_floor: int
    state_format: int
    def __init__(self, format: _Optional[int] = ..., cluster_id: _Optional[str] = ..., epoch_floor: _Optional[int] = ..., state_format: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("format", "name", "id", "partitions", "configs", "state", "epoch_floor", "created_ms")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LIVE: _ClassVar[Topic.State]
        DELETING: _ClassVar[Topic.State]
    LIVE: Topic.State
    DELETING: Topic.State
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FLOOR_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    format: int
    name: str
    id: bytes
    partitions: int
    configs: _containers.ScalarMap[str, str]
    state: Topic.State
    epoch_floor: int
    created_ms: int
    def __init__(self, format: _Optional[int] = ..., name: _Optional[str] = ..., id: _Optional[bytes] = ..., partitions: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ..., state: _Optional[_Union[Topic.State, str]] = ..., epoch_floor: _Optional[int] = ..., created_ms: _Optional[int] = ...) -> None: ...

class LastSegment(_message.Message):
    __slots__ = ("base_offset", "size", "crc")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    size: int
    crc: int
    def __init__(self, base_offset: _Optional[int] = ..., size: _Optional[int] = ..., crc: _Optional[int] = ...) -> None: ...

class IntakeTail(_message.Message):
    __slots__ = ("run_id", "epoch", "end")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    epoch: int
    end: int
    def __init__(self, run_id: _Optional[str] = ..., epoch: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class IntakeRegister(_message.Message):
    __slots__ = ("format", "sealed", "intake", "state_format")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    INTAKE_FIELD_NUMBER: _ClassVar[int]
    STATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    format: int
    sealed: bool
    intake: bool
    state_format: int
    def __init__(self, format: _Optional[int] = ..., sealed: _Optional[bool] = ..., intake: _Optional[bool] = ..., state_format: _Optional[int] = ...) -> None: ...

class RootRef(_message.Message):
    __slots__ = ("number", "epoch", "attempt", "crc", "through")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    number: int
    epoch: int
    attempt: int
    crc: int
    through: int
    def __init__(self, number: _Optional[int] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., crc: _Optional[int] = ..., through: _Optional[int] = ...) -> None: ...

class PartitionState(_message.Message):
    __slots__ = ("format", "topic_id", "epoch", "owner", "log_start", "high_watermark", "last_segment", "producer_snapshot", "producers_from", "unclean", "sinks", "tail", "root")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FROM_FIELD_NUMBER: _ClassVar[int]
    UNCLEAN_FIELD_NUMBER: _ClassVar[int]
    SINKS_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    format: int
    topic_id: bytes
    epoch: int
    owner: str
    log_start: int
    high_watermark: int
    last_segment: LastSegment
    producer_snapshot: str
    producers_from: int
    unclean: bool
    sinks: _containers.RepeatedCompositeFieldContainer[SinkProgress]
    tail: IntakeTail
    root: RootRef
    def __init__(self, format: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., epoch: _Optional[int] = ..., owner: _Optional[str] = ..., log_start: _Optional[int] = ..., high_watermark: _Optional[int] = ..., last_segment: _Optional[_Union[LastSegment, _Mapping]] = ..., producer_snapshot: _Optional[str] = ..., producers_from: _Optional[int] = ..., unclean: _Optional[bool] = ..., sinks: _Optional[_Iterable[_Union[SinkProgress, _Mapping]]] = ..., tail: _Optional[_Union[IntakeTail, _Mapping]] = ..., root: _Optional[_Union[RootRef, _Mapping]] = ...) -> None: ...

class SinkProgress(_message.Message):
    __slots__ = ("sink", "epoch", "batches", "committed_ms")
    SINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    sink: str
    epoch: int
    batches: int
    committed_ms: int
    def __init__(self, sink: _Optional[str] = ..., epoch: _Optional[int] = ..., batches: _Optional[int] = ..., committed_ms: _Optional[int] = ...) -> None: ...

class Sink(_message.Message):
    __slots__ = ("format", "sink", "epoch", "manifest", "manifest_size", "manifest_crc", "remaining", "committed_ms", "once", "discarded")
    class Discard(_message.Message):
        __slots__ = ("epoch", "discarded_ms", "stages")
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        DISCARDED_MS_FIELD_NUMBER: _ClassVar[int]
        STAGES_FIELD_NUMBER: _ClassVar[int]
        epoch: int
        discarded_ms: int
        stages: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, epoch: _Optional[int] = ..., discarded_ms: _Optional[int] = ..., stages: _Optional[_Iterable[int]] = ...) -> None: ...
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SIZE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_CRC_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_FIELD_NUMBER: _ClassVar[int]
    format: int
    sink: str
    epoch: int
    manifest: str
    manifest_size: int
    manifest_crc: int
    remaining: _containers.RepeatedCompositeFieldContainer[_common_pb2.PartitionRef]
    committed_ms: int
    once: bool
    discarded: _containers.RepeatedCompositeFieldContainer[Sink.Discard]
    def __init__(self, format: _Optional[int] = ..., sink: _Optional[str] = ..., epoch: _Optional[int] = ..., manifest: _Optional[str] = ..., manifest_size: _Optional[int] = ..., manifest_crc: _Optional[int] = ..., remaining: _Optional[_Iterable[_Union[_common_pb2.PartitionRef, _Mapping]]] = ..., committed_ms: _Optional[int] = ..., once: _Optional[bool] = ..., discarded: _Optional[_Iterable[_Union[Sink.Discard, _Mapping]]] = ...) -> None: ...

class SinkManifest(_message.Message):
    __slots__ = ("format", "sink", "epoch", "partitions")
    class Partition(_message.Message):
        __slots__ = ("partition", "stages")
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        STAGES_FIELD_NUMBER: _ClassVar[int]
        partition: _common_pb2.PartitionRef
        stages: _containers.RepeatedCompositeFieldContainer[SinkManifest.StagedObject]
        def __init__(self, partition: _Optional[_Union[_common_pb2.PartitionRef, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[SinkManifest.StagedObject, _Mapping]]] = ...) -> None: ...
    class StagedObject(_message.Message):
        __slots__ = ("key", "size", "crc", "batches")
        KEY_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        CRC_FIELD_NUMBER: _ClassVar[int]
        BATCHES_FIELD_NUMBER: _ClassVar[int]
        key: str
        size: int
        crc: int
        batches: int
        def __init__(self, key: _Optional[str] = ..., size: _Optional[int] = ..., crc: _Optional[int] = ..., batches: _Optional[int] = ...) -> None: ...
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    format: int
    sink: str
    epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[SinkManifest.Partition]
    def __init__(self, format: _Optional[int] = ..., sink: _Optional[str] = ..., epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[SinkManifest.Partition, _Mapping]]] = ...) -> None: ...

class ProducerSnapshot(_message.Message):
    __slots__ = ("format", "producers", "crc")
    class Batch(_message.Message):
        __slots__ = ("first_sequence", "last_sequence", "base_offset", "last_offset")
        FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
        LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
        first_sequence: int
        last_sequence: int
        base_offset: int
        last_offset: int
        def __init__(self, first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., base_offset: _Optional[int] = ..., last_offset: _Optional[int] = ...) -> None: ...
    class Producer(_message.Message):
        __slots__ = ("producer_id", "epoch", "used_ms", "batches")
        PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        USED_MS_FIELD_NUMBER: _ClassVar[int]
        BATCHES_FIELD_NUMBER: _ClassVar[int]
        producer_id: int
        epoch: int
        used_ms: int
        batches: _containers.RepeatedCompositeFieldContainer[ProducerSnapshot.Batch]
        def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., used_ms: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[ProducerSnapshot.Batch, _Mapping]]] = ...) -> None: ...
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    format: int
    producers: _containers.RepeatedCompositeFieldContainer[ProducerSnapshot.Producer]
    crc: int
    def __init__(self, format: _Optional[int] = ..., producers: _Optional[_Iterable[_Union[ProducerSnapshot.Producer, _Mapping]]] = ..., crc: _Optional[int] = ...) -> None: ...

class ProducerIds(_message.Message):
    __slots__ = ("format", "next")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    format: int
    next: int
    def __init__(self, format: _Optional[int] = ..., next: _Optional[int] = ...) -> None: ...

class EpochHistory(_message.Message):
    __slots__ = ("format", "entries", "topic_id", "owner")
    class Entry(_message.Message):
        __slots__ = ("epoch", "first_offset", "leader_offset")
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
        LEADER_OFFSET_FIELD_NUMBER: _ClassVar[int]
        epoch: int
        first_offset: int
        leader_offset: int
        def __init__(self, epoch: _Optional[int] = ..., first_offset: _Optional[int] = ..., leader_offset: _Optional[int] = ...) -> None: ...
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    format: int
    entries: _containers.RepeatedCompositeFieldContainer[EpochHistory.Entry]
    topic_id: bytes
    owner: str
    def __init__(self, format: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[EpochHistory.Entry, _Mapping]]] = ..., topic_id: _Optional[bytes] = ..., owner: _Optional[str] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("format", "run_id", "service", "address", "started_ms", "leaving", "node_id", "listeners", "version", "draining", "state_format")
    class Listener(_message.Message):
        __slots__ = ("name", "host", "port")
        NAME_FIELD_NUMBER: _ClassVar[int]
        HOST_FIELD_NUMBER: _ClassVar[int]
        PORT_FIELD_NUMBER: _ClassVar[int]
        name: str
        host: str
        port: int
        def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    STATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    format: int
    run_id: str
    service: str
    address: str
    started_ms: int
    leaving: bool
    node_id: int
    listeners: _containers.RepeatedCompositeFieldContainer[Member.Listener]
    version: str
    draining: bool
    state_format: int
    def __init__(self, format: _Optional[int] = ..., run_id: _Optional[str] = ..., service: _Optional[str] = ..., address: _Optional[str] = ..., started_ms: _Optional[int] = ..., leaving: _Optional[bool] = ..., node_id: _Optional[int] = ..., listeners: _Optional[_Iterable[_Union[Member.Listener, _Mapping]]] = ..., version: _Optional[str] = ..., draining: _Optional[bool] = ..., state_format: _Optional[int] = ...) -> None: ...

class NodeId(_message.Message):
    __slots__ = ("format", "instance")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    format: int
    instance: str
    def __init__(self, format: _Optional[int] = ..., instance: _Optional[str] = ...) -> None: ...

class ScramCredential(_message.Message):
    __slots__ = ("mechanism", "salt", "iterations", "stored_key", "server_key")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    mechanism: int
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    def __init__(self, mechanism: _Optional[int] = ..., salt: _Optional[bytes] = ..., iterations: _Optional[int] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("format", "name", "credentials")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    format: int
    name: str
    credentials: _containers.RepeatedCompositeFieldContainer[ScramCredential]
    def __init__(self, format: _Optional[int] = ..., name: _Optional[str] = ..., credentials: _Optional[_Iterable[_Union[ScramCredential, _Mapping]]] = ...) -> None: ...

class Acl(_message.Message):
    __slots__ = ("format", "resource_type", "pattern_type", "name", "principal", "host", "operation", "permission")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    format: int
    resource_type: int
    pattern_type: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, format: _Optional[int] = ..., resource_type: _Optional[int] = ..., pattern_type: _Optional[int] = ..., name: _Optional[str] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class Quotas(_message.Message):
    __slots__ = ("format", "entity", "limits")
    class Part(_message.Message):
        __slots__ = ("type", "name")
        TYPE_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        type: str
        name: str
        def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    format: int
    entity: _containers.RepeatedCompositeFieldContainer[Quotas.Part]
    limits: _containers.ScalarMap[str, float]
    def __init__(self, format: _Optional[int] = ..., entity: _Optional[_Iterable[_Union[Quotas.Part, _Mapping]]] = ..., limits: _Optional[_Mapping[str, float]] = ...) -> None: ...
