"""Implements the gRPC service ``kafscale.v1.Admin``."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import grpc
import trio
from kio.schema.errors import ErrorCode

from kafscale.errors import Refused, Unavailable
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from services.gateway.admin import acls, configs, consumer_groups, offsets, partitions, quotas, topics, users
from services.gateway.admin.cluster import ClusterReport
from services.gateway.admin.drain import Drains
from services.gateway.admin.sinks import list_sinks
from services.gateway.admin.state_format import finalize_upgrade
from services.gateway.admin.totals import TotalsReport
from services.gateway.admin.watch import Watches
from services.gateway.api import Environment
from services.gateway.owners.errors import RefusedPart
from services.gateway.service import Gateway

_STATUS = grpc.StatusCode
_CODES = {
    ErrorCode.unknown_topic_or_partition: _STATUS.NOT_FOUND,
    ErrorCode.group_id_not_found: _STATUS.NOT_FOUND,
    ErrorCode.resource_not_found: _STATUS.NOT_FOUND,
    ErrorCode.topic_already_exists: _STATUS.ALREADY_EXISTS,
    ErrorCode.invalid_topic_exception: _STATUS.INVALID_ARGUMENT,
    ErrorCode.invalid_partitions: _STATUS.INVALID_ARGUMENT,
    ErrorCode.invalid_config: _STATUS.INVALID_ARGUMENT,
    ErrorCode.invalid_request: _STATUS.INVALID_ARGUMENT,
    ErrorCode.invalid_group_id: _STATUS.INVALID_ARGUMENT,
    ErrorCode.invalid_principal_type: _STATUS.INVALID_ARGUMENT,
    ErrorCode.security_disabled: _STATUS.FAILED_PRECONDITION,
    ErrorCode.unacceptable_credential: _STATUS.INVALID_ARGUMENT,
    ErrorCode.unsupported_sasl_mechanism: _STATUS.INVALID_ARGUMENT,
    ErrorCode.non_empty_group: _STATUS.FAILED_PRECONDITION,
    ErrorCode.corrupt_message: _STATUS.DATA_LOSS,
    ErrorCode.request_timed_out: _STATUS.DEADLINE_EXCEEDED,
}
"""The gRPC status for each Kafka error. Other errors become UNAVAILABLE, because a retry may succeed."""


class AdminService:
    """The service of one gateway. Methods raise StatusError, and Unavailable until ``gateway`` has started."""

    def __init__(self, gateway: Gateway, cluster: ClusterReport, totals: TotalsReport) -> None:
        self._gateway = gateway
        self._cluster = cluster
        self._totals = totals
        self._drains = Drains(gateway.parts, cluster.members)
        self._watches = Watches(gateway.parts, cluster)

    @contextmanager
    def _handling(self) -> Iterator[Environment]:
        environment = self._gateway.environment
        if environment is None:
            raise Unavailable("the gateway is starting")
        try:
            yield environment
        except Refused as refused:
            # FAILED_PRECONDITION is reserved for problems that the operator can fix.
            raise StatusError(_STATUS.INTERNAL, str(refused)) from refused
        except RefusedPart as refused:
            raise StatusError(_CODES.get(refused.code, _STATUS.UNAVAILABLE), str(refused)) from refused

    async def _while_serving(self, answer: Callable[[], Awaitable[None]]) -> None:
        """Run ``answer``, which sends a stream of replies. Raises StatusError if the gateway stops meanwhile."""
        failure: Exception | None = None

        async def run() -> None:
            nonlocal failure
            try:
                await answer()
            except Exception as error:  # noqa: BLE001  raised below, outside the nursery's group
                failure = error
            nursery.cancel_scope.cancel()

        stopped = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await self._gateway.stopping.wait()
            stopped = True
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if stopped:
            raise StatusError(_STATUS.UNAVAILABLE, "the gateway is stopping; use another one")

    async def cluster_status(self, _: pb.ClusterStatusRequest) -> pb.ClusterStatusReply:
        with self._handling() as environment:
            return await self._cluster.status(environment)

    async def cluster_totals(self, _: pb.ClusterTotalsRequest) -> pb.ClusterTotalsReply:
        with self._handling():
            return await self._totals.report()

    async def list_topics(self, _: pb.ListTopicsRequest) -> pb.ListTopicsReply:
        with self._handling() as environment:
            return topics.list_topics(environment)

    async def create_topic(self, request: pb.CreateTopicRequest) -> pb.CreateTopicReply:
        with self._handling() as environment:
            return await topics.create_topic(environment, request)

    async def describe_topic(self, request: pb.DescribeTopicRequest) -> pb.DescribeTopicReply:
        with self._handling() as environment:
            return topics.describe_topic(environment, request)

    async def grow_topic(self, request: pb.GrowTopicRequest) -> pb.GrowTopicReply:
        with self._handling() as environment:
            return await topics.grow_topic(environment, request)

    async def delete_topic(self, request: pb.DeleteTopicRequest) -> pb.DeleteTopicReply:
        with self._handling() as environment:
            return await topics.delete_topic(environment, request)

    async def list_partitions(self, request: pb.ListPartitionsRequest) -> pb.ListPartitionsReply:
        with self._handling() as environment:
            return await partitions.list_partitions(environment, request)

    async def list_segments(self, request: pb.ListSegmentsRequest) -> pb.ListSegmentsReply:
        with self._handling() as environment:
            return await partitions.list_segments(environment, request)

    async def describe_segment(self, request: pb.DescribeStoredSegmentRequest) -> pb.DescribeStoredSegmentReply:
        with self._handling() as environment:
            return await partitions.describe_segment(environment, request)

    async def rebuild_indexes(self, request: pb.RebuildIndexesRequest) -> pb.ListSegmentsReply:
        with self._handling() as environment:
            return await partitions.rebuild_indexes(environment, request)

    async def flush_topics(self, request: pb.FlushTopicsRequest) -> pb.FlushTopicsReply:
        with self._handling() as environment:
            return await partitions.flush_topics(environment, request)

    async def describe_configs(self, request: pb.DescribeConfigsRequest) -> pb.DescribeConfigsReply:
        with self._handling() as environment:
            return configs.describe_configs(environment, request)

    async def alter_configs(self, request: pb.AlterConfigsRequest) -> pb.AlterConfigsReply:
        with self._handling() as environment:
            return await configs.alter_configs(environment, request)

    async def list_consumer_groups(self, request: pb.ListConsumerGroupsRequest) -> pb.ListConsumerGroupsReply:
        with self._handling() as environment:
            return await consumer_groups.list_groups(environment, request)

    async def describe_consumer_group(self, request: pb.DescribeConsumerGroupRequest) -> pb.DescribeConsumerGroupReply:
        with self._handling() as environment:
            return await consumer_groups.describe_group(environment, request)

    async def reset_offsets(self, request: pb.ResetOffsetsRequest) -> pb.ResetOffsetsReply:
        with self._handling() as environment:
            return await offsets.reset_offsets(environment, request)

    async def delete_consumer_group(self, request: pb.DeleteConsumerGroupRequest) -> pb.DeleteConsumerGroupReply:
        with self._handling() as environment:
            return await consumer_groups.delete_group(environment, request)

    async def list_users(self, request: pb.ListUsersRequest) -> pb.ListUsersReply:
        with self._handling() as environment:
            return users.list_users(environment, request)

    async def set_user_credentials(self, request: pb.SetUserCredentialsRequest) -> pb.SetUserCredentialsReply:
        with self._handling() as environment:
            return await users.set_credentials(environment, request)

    async def delete_user_credentials(self, request: pb.DeleteUserCredentialsRequest) -> pb.DeleteUserCredentialsReply:
        with self._handling() as environment:
            return await users.delete_credentials(environment, request)

    async def list_acls(self, request: pb.ListAclsRequest) -> pb.ListAclsReply:
        with self._handling() as environment:
            return acls.list_acls(environment, request)

    async def create_acls(self, request: pb.CreateAclsRequest) -> pb.CreateAclsReply:
        with self._handling() as environment:
            return await acls.create(environment, request)

    async def delete_acls(self, request: pb.DeleteAclsRequest) -> pb.DeleteAclsReply:
        with self._handling() as environment:
            return await acls.delete(environment, request)

    async def list_quotas(self, _: pb.ListQuotasRequest) -> pb.ListQuotasReply:
        with self._handling() as environment:
            return quotas.list_quotas(environment)

    async def set_quotas(self, request: pb.SetQuotasRequest) -> pb.SetQuotasReply:
        with self._handling() as environment:
            return await quotas.set_quotas(environment, request)

    async def list_sinks(self, _: pb.ListSinksRequest) -> pb.ListSinksReply:
        with self._handling():
            return await list_sinks(self._gateway.parts.metadata, self._gateway.parts.namespace)

    async def drain_instance(
        self, request: pb.DrainInstanceRequest, send: Callable[[pb.DrainProgress], Awaitable[None]]
    ) -> None:
        with self._handling() as environment:
            await self._while_serving(lambda: self._drains.drain(environment, request, send))

    async def cancel_drain(self, request: pb.CancelDrainRequest) -> pb.CancelDrainReply:
        with self._handling():
            return await self._drains.cancel(request)

    async def finalize_upgrade(self, request: pb.FinalizeUpgradeRequest) -> pb.FinalizeUpgradeReply:
        with self._handling():
            return await finalize_upgrade(self._gateway.parts.metadata, self._gateway.parts.namespace, request)

    async def watch_cluster(
        self, _: pb.WatchClusterRequest, send: Callable[[pb.ClusterChange], Awaitable[None]]
    ) -> None:
        with self._handling():
            await self._while_serving(lambda: self._watches.watch(send))
