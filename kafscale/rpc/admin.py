"""The Admin service over gRPC: its methods for clients, and its binding for gateways.

It is called by operators' tools, not by services. Errors are gRPC status codes (`StatusError`) on both sides.
"""

from collections.abc import Callable, Sequence

import grpc

from kafscale.errors import Unavailable
from kafscale.rpc.access import CallGuard
from kafscale.rpc.client import Channel
from kafscale.rpc.errors import StatusError
from kafscale.rpc.methods import BoundService, bind, method
from kafscale.rpc.peer_health import PeerHealth
from kafscale.v1 import admin_pb2 as pb

_HEALTH_CHECK_SECONDS = 10.0
"""The timeout of a gateway's health check if another gateway can be tried."""
SERVICE = pb.DESCRIPTOR.services_by_name["Admin"]

CLUSTER_STATUS = method(SERVICE, "ClusterStatus", pb.ClusterStatusRequest, pb.ClusterStatusReply)
CLUSTER_TOTALS = method(SERVICE, "ClusterTotals", pb.ClusterTotalsRequest, pb.ClusterTotalsReply)
LIST_TOPICS = method(SERVICE, "ListTopics", pb.ListTopicsRequest, pb.ListTopicsReply)
CREATE_TOPIC = method(SERVICE, "CreateTopic", pb.CreateTopicRequest, pb.CreateTopicReply)
DESCRIBE_TOPIC = method(SERVICE, "DescribeTopic", pb.DescribeTopicRequest, pb.DescribeTopicReply)
GROW_TOPIC = method(SERVICE, "GrowTopic", pb.GrowTopicRequest, pb.GrowTopicReply)
DELETE_TOPIC = method(SERVICE, "DeleteTopic", pb.DeleteTopicRequest, pb.DeleteTopicReply)
LIST_PARTITIONS = method(SERVICE, "ListPartitions", pb.ListPartitionsRequest, pb.ListPartitionsReply)
LIST_SEGMENTS = method(SERVICE, "ListSegments", pb.ListSegmentsRequest, pb.ListSegmentsReply)
DESCRIBE_SEGMENT = method(SERVICE, "DescribeSegment", pb.DescribeStoredSegmentRequest, pb.DescribeStoredSegmentReply)
FLUSH_TOPICS = method(SERVICE, "FlushTopics", pb.FlushTopicsRequest, pb.FlushTopicsReply)
DESCRIBE_CONFIGS = method(SERVICE, "DescribeConfigs", pb.DescribeConfigsRequest, pb.DescribeConfigsReply)
ALTER_CONFIGS = method(SERVICE, "AlterConfigs", pb.AlterConfigsRequest, pb.AlterConfigsReply)
LIST_GROUPS = method(SERVICE, "ListConsumerGroups", pb.ListConsumerGroupsRequest, pb.ListConsumerGroupsReply)
DESCRIBE_GROUP = method(
    SERVICE, "DescribeConsumerGroup", pb.DescribeConsumerGroupRequest, pb.DescribeConsumerGroupReply
)
RESET_OFFSETS = method(SERVICE, "ResetOffsets", pb.ResetOffsetsRequest, pb.ResetOffsetsReply)
DELETE_GROUP = method(SERVICE, "DeleteConsumerGroup", pb.DeleteConsumerGroupRequest, pb.DeleteConsumerGroupReply)
LIST_USERS = method(SERVICE, "ListUsers", pb.ListUsersRequest, pb.ListUsersReply)
SET_USER_CREDENTIALS = method(SERVICE, "SetUserCredentials", pb.SetUserCredentialsRequest, pb.SetUserCredentialsReply)
DELETE_USER_CREDENTIALS = method(
    SERVICE, "DeleteUserCredentials", pb.DeleteUserCredentialsRequest, pb.DeleteUserCredentialsReply
)
LIST_ACLS = method(SERVICE, "ListAcls", pb.ListAclsRequest, pb.ListAclsReply)
CREATE_ACLS = method(SERVICE, "CreateAcls", pb.CreateAclsRequest, pb.CreateAclsReply)
DELETE_ACLS = method(SERVICE, "DeleteAcls", pb.DeleteAclsRequest, pb.DeleteAclsReply)
LIST_QUOTAS = method(SERVICE, "ListQuotas", pb.ListQuotasRequest, pb.ListQuotasReply)
SET_QUOTAS = method(SERVICE, "SetQuotas", pb.SetQuotasRequest, pb.SetQuotasReply)
LIST_SINKS = method(SERVICE, "ListSinks", pb.ListSinksRequest, pb.ListSinksReply)
DRAIN_INSTANCE = method(SERVICE, "DrainInstance", pb.DrainInstanceRequest, pb.DrainProgress)
CANCEL_DRAIN = method(SERVICE, "CancelDrain", pb.CancelDrainRequest, pb.CancelDrainReply)
FINALIZE_UPGRADE = method(SERVICE, "FinalizeUpgrade", pb.FinalizeUpgradeRequest, pb.FinalizeUpgradeReply)
REBUILD_INDEXES = method(SERVICE, "RebuildIndexes", pb.RebuildIndexesRequest, pb.ListSegmentsReply)
WATCH_CLUSTER = method(SERVICE, "WatchCluster", pb.WatchClusterRequest, pb.ClusterChange)


def bind_admin(service: object, *, token: str = "", guard: CallGuard | None = None) -> BoundService:
    """Bind ``service`` for `kafscale.rpc.server.RpcServer`. ``token`` and ``guard``: see `BoundService`."""
    return bind(SERVICE, service, token=token, guard=guard)


async def serving_gateway(addresses: Sequence[str], connect: Callable[[str], Channel], *, timeout: float) -> str:
    """Return the first of ``addresses`` that serves. Each health check takes at most ``timeout`` seconds.

    An admin call must be sent only once, so the gateway is chosen with health checks, which can be repeated.
    ``connect`` returns channels that raise StatusError. Raises an Unavailable that names the reason for each address.
    """
    reasons = []
    for address in addresses:
        within = timeout if address == addresses[-1] else min(timeout, _HEALTH_CHECK_SECONDS)
        try:
            async with connect(address) as channel:
                if await PeerHealth(channel).serving(SERVICE.full_name, timeout=within):
                    return address
            reasons.append(f"{address}: starting or stopping")
        except StatusError as error:
            foreign = error.code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED)
            reasons.append(f"{address}: {'not a gateway' if foreign else error}")
    raise Unavailable("no gateway answers: " + "; ".join(reasons))
