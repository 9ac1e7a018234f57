"""What several APIs tell clients of topics and of the cluster."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.metadata.topic_values import TopicInfo
from services.gateway.api import Environment
from services.gateway.brokers import BrokerList

NOT_ASKED_FOR = -(1 << 31)
# Bits by Kafka's AclOperation codes: what anybody may do who may do everything.
ALL_ON_TOPIC = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_ON_CLUSTER = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


@dataclass(frozen=True, slots=True)
class ShownPartition:
    """Its leader is the one replica. Leader epochs count the storage owners behind."""

    partition_index: int
    leader_id: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    leader_epoch: int
    error_code: ErrorCode = ErrorCode.none
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


def shown_partition(environment: Environment, brokers: BrokerList, topic: TopicInfo, index: int) -> ShownPartition:
    leader = brokers.leader(topic.id, index)
    owned = environment.ownership.get(topic.id, index)
    # The first owner's epoch follows the floor.
    return ShownPartition(index, leader, (leader,), (leader,), owned.epoch if owned else topic.epoch_floor + 1)
