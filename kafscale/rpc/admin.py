"""The Admin service behind gRPC: its methods for clients, and how a gateway serves it.

Its callers are operators' tools, not services: errors have gRPC's own status codes (`StatusError`), both ways.
"""

from collections.abc import Callable, Sequence

import grpc

from kafscale.errors import Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.errors import StatusError
from kafscale.rpc.methods import BoundService, bind, method
from kafscale.rpc.peer_health import PeerHealth
from kafscale.v1 import admin_pb2 as pb

LOOK_SECONDS = 10.0
"""What a gateway may take to say whether it serves, where there is another one to ask."""
SERVICE = pb.DESCRIPTOR.services_by_name["Admin"]

CLUSTER_STATUS = method(SERVICE, "ClusterStatus", pb.ClusterStatusRequest, pb.ClusterStatusReply)
LIST_TOPICS = method(SERVICE, "ListTopics", pb.ListTopicsRequest, pb.ListTopicsReply)
CREATE_TOPIC = method(SERVICE, "CreateTopic", pb.CreateTopicRequest, pb.CreateTopicReply)
DESCRIBE_TOPIC = method(SERVICE, "DescribeTopic", pb.DescribeTopicRequest, pb.DescribeTopicReply)
GROW_TOPIC = method(SERVICE, "GrowTopic", pb.GrowTopicRequest, pb.GrowTopicReply)
DELETE_TOPIC = method(SERVICE, "DeleteTopic", pb.DeleteTopicRequest, pb.DeleteTopicReply)
LIST_PARTITIONS = method(SERVICE, "ListPartitions", pb.ListPartitionsRequest, pb.ListPartitionsReply)
LIST_SEGMENTS = method(SERVICE, "ListSegments", pb.ListSegmentsRequest, pb.ListSegmentsReply)
FLUSH_TOPICS = method(SERVICE, "FlushTopics", pb.FlushTopicsRequest, pb.FlushTopicsReply)
DESCRIBE_CONFIGS = method(SERVICE, "DescribeConfigs", pb.DescribeConfigsRequest, pb.DescribeConfigsReply)
ALTER_CONFIGS = method(SERVICE, "AlterConfigs", pb.AlterConfigsRequest, pb.AlterConfigsReply)
LIST_GROUPS = method(SERVICE, "ListConsumerGroups", pb.ListConsumerGroupsRequest, pb.ListConsumerGroupsReply)
DESCRIBE_GROUP = method(
    SERVICE, "DescribeConsumerGroup", pb.DescribeConsumerGroupRequest, pb.DescribeConsumerGroupReply
)
RESET_OFFSETS = method(SERVICE, "ResetOffsets", pb.ResetOffsetsRequest, pb.ResetOffsetsReply)
DELETE_GROUP = method(SERVICE, "DeleteConsumerGroup", pb.DeleteConsumerGroupRequest, pb.DeleteConsumerGroupReply)
DRAIN_INSTANCE = method(SERVICE, "DrainInstance", pb.DrainInstanceRequest, pb.DrainProgress)
CANCEL_DRAIN = method(SERVICE, "CancelDrain", pb.CancelDrainRequest, pb.CancelDrainReply)
REBUILD_INDEXES = method(SERVICE, "RebuildIndexes", pb.RebuildIndexesRequest, pb.ListSegmentsReply)
WATCH_CLUSTER = method(SERVICE, "WatchCluster", pb.WatchClusterRequest, pb.ClusterChange)


def bind_admin(service: object, *, token: str) -> BoundService:
    """For `kafscale.rpc.server.RpcServer`. ``token``: what callers must show; empty: nothing."""
    return bind(SERVICE, service, token=token)


async def serving_gateway(addresses: Sequence[str], connect: Callable[[str], Channel], *, timeout: float) -> str:
    """The first of ``addresses`` that serves, each asked for ``timeout`` seconds at most.

    A call is sent once: whom it is sent to is chosen by asking something that may be asked again. ``connect`` gives
    channels that raise StatusError. Raises Unavailable that says of each why not.
    """
    reasons = []
    for address in addresses:
        within = timeout if address == addresses[-1] else min(timeout, LOOK_SECONDS)
        try:
            async with connect(address) as channel:
                if await PeerHealth(channel).serving(SERVICE.full_name, timeout=within):
                    return address
            reasons.append(f"{address}: it is starting or stopping")
        except StatusError as error:
            foreign = error.code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED)
            reasons.append(f"{address}: {'it is no gateway' if foreign else error}")
    raise Unavailable("no gateway answers: " + "; ".join(reasons))
