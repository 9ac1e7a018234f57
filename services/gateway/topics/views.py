"""Parts of responses about topics and the cluster that several APIs share."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.metadata.topic_values import TopicInfo
from kafscale.security.acls import ResourceType
from services.gateway.api import Call, Environment
from services.gateway.brokers import BrokerList

NOT_REQUESTED = -(1 << 31)


@dataclass(frozen=True, slots=True)
class ShownPartition:
    """A partition whose leader is the only replica. The leader epoch is that of the partition's owner in storage."""

    partition_index: int
    leader_id: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    leader_epoch: int
    error_code: ErrorCode = ErrorCode.none
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


def operations_on_topic(call: Call, name: str) -> int:
    """What the client may do with a topic, as a bit field of Kafka's operation codes."""
    return call.client.authorization.operations(ResourceType.TOPIC, name)


def shown_partition(environment: Environment, brokers: BrokerList, topic: TopicInfo, index: int) -> ShownPartition:
    leader = brokers.leader(topic.id, index)
    owned = environment.ownership.get(topic.id, index)
    # Before there is an owner, report the epoch that the first one will have.
    return ShownPartition(index, leader, (leader,), (leader,), owned.epoch if owned else topic.epoch_floor + 1)
