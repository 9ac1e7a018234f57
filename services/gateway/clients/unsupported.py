"""The APIs of Apache Kafka that the gateway does not support, and why."""

from collections.abc import Mapping

_NO_TRANSACTIONS = "there are no transactions"
_NO_REPLICAS = "there are no replicas; the object store keeps the data"
_NO_KRAFT = "cluster state is in etcd, not in KRaft"
_NO_TOKENS = "there are no delegation tokens"
_NO_SHARES = "there are no share groups"
_NO_STREAMS = "there are no streams groups; Kafka Streams can use the classic protocol"
_NO_NEW_GROUPS = "consumer groups use the classic protocol"
_BROKERS_ONLY = "it is used only between Kafka's brokers and controllers"
_NO_TELEMETRY = "client metrics are not collected"

UNSUPPORTED: Mapping[int, tuple[str, str]] = {
    4: ("LeaderAndIsr", _BROKERS_ONLY),
    5: ("StopReplica", _NO_REPLICAS),
    6: ("UpdateMetadata", _BROKERS_ONLY),
    7: ("ControlledShutdown", "a process that stops hands over its partitions and groups automatically"),
    24: ("AddPartitionsToTxn", _NO_TRANSACTIONS),
    25: ("AddOffsetsToTxn", _NO_TRANSACTIONS),
    26: ("EndTxn", _NO_TRANSACTIONS),
    27: ("WriteTxnMarkers", _NO_TRANSACTIONS),
    28: ("TxnOffsetCommit", _NO_TRANSACTIONS),
    34: ("AlterReplicaLogDirs", _NO_REPLICAS),
    38: ("CreateDelegationToken", _NO_TOKENS),
    39: ("RenewDelegationToken", _NO_TOKENS),
    40: ("ExpireDelegationToken", _NO_TOKENS),
    41: ("DescribeDelegationToken", _NO_TOKENS),
    52: ("Vote", _NO_KRAFT),
    53: ("BeginQuorumEpoch", _NO_KRAFT),
    54: ("EndQuorumEpoch", _NO_KRAFT),
    56: ("AlterPartition", _NO_KRAFT),
    57: ("UpdateFeatures", "there are no feature flags"),
    58: ("Envelope", _BROKERS_ONLY),
    59: ("FetchSnapshot", _NO_KRAFT),
    62: ("BrokerRegistration", _NO_KRAFT),
    63: ("BrokerHeartbeat", _NO_KRAFT),
    64: ("UnregisterBroker", _NO_KRAFT),
    67: ("AllocateProducerIds", _BROKERS_ONLY),
    69: ("ConsumerGroupDescribe", _NO_NEW_GROUPS),
    70: ("ControllerRegistration", _NO_KRAFT),
    71: ("GetTelemetrySubscriptions", _NO_TELEMETRY),
    72: ("PushTelemetry", _NO_TELEMETRY),
    73: ("AssignReplicasToDirs", _NO_KRAFT),
    76: ("ShareGroupHeartbeat", _NO_SHARES),
    77: ("ShareGroupDescribe", _NO_SHARES),
    78: ("ShareFetch", _NO_SHARES),
    79: ("ShareAcknowledge", _NO_SHARES),
    80: ("AddRaftVoter", _NO_KRAFT),
    81: ("RemoveRaftVoter", _NO_KRAFT),
    82: ("UpdateRaftVoter", _NO_KRAFT),
    83: ("InitializeShareGroupState", _NO_SHARES),
    84: ("ReadShareGroupState", _NO_SHARES),
    85: ("WriteShareGroupState", _NO_SHARES),
    86: ("DeleteShareGroupState", _NO_SHARES),
    87: ("ReadShareGroupStateSummary", _NO_SHARES),
    88: ("StreamsGroupHeartbeat", _NO_STREAMS),
    89: ("StreamsGroupDescribe", _NO_STREAMS),
    90: ("DescribeShareGroupOffsets", _NO_SHARES),
    91: ("AlterShareGroupOffsets", _NO_SHARES),
    92: ("DeleteShareGroupOffsets", _NO_SHARES),
    93: ("StreamsGroupTopologyDescriptionUpdate", _NO_STREAMS),
    94: ("UnregisterController", _NO_KRAFT),
}
"""The name and the reason, by API key."""
