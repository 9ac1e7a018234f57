"""Reports the processes of a cluster, their health, and what each of them owns."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

import structlog
import trio

from kafscale.errors import KafscaleError
from kafscale.metadata.members import LiveMember, Members
from kafscale.metadata.topic_values import INTAKE_STATE_FORMAT
from kafscale.paths import GROUP_SHARDS
from kafscale.process.health import Health
from kafscale.rpc.peer_health import PeerHealth
from kafscale.v1 import admin_pb2 as pb
from services.gateway.admin.state_format import known_state_format, read_formats
from services.gateway.api import Environment
from services.gateway.service import GatewayDependencies

log = structlog.get_logger()

_HEALTH_SECONDS = 3.0
"""The timeout of a health request to a process, and of reading the state formats."""

ConnectHealth = Callable[[LiveMember], AbstractAsyncContextManager[PeerHealth]]


class ClusterReport:
    """``indexers`` are the members of that service and must be running. ``health`` is that of this process."""

    def __init__(self, parts: GatewayDependencies, indexers: Members, health: Health, connect: ConnectHealth) -> None:
        self._parts = parts
        self.members: Mapping[str, Members] = {
            "coordinator": parts.coordinators,
            "gateway": parts.gateways,
            "indexer": indexers,
            "storage": parts.storages,
        }
        self._health = health
        self._connect = connect

    async def status(self, environment: Environment) -> pb.ClusterStatusReply:
        """Report all registered processes. They are asked for their health at the same time."""
        reply = pb.ClusterStatusReply(cluster_id=environment.cluster_id, namespace=environment.namespace)
        owned = await self._count(environment, reply)
        async with trio.open_nursery() as nursery:
            for service, members in self.members.items():
                for live in members.view.present:
                    entry = reply.members.add()
                    describe(entry, service, live)
                    entry.owned = owned[live.run_id]
                    nursery.start_soon(self.ask, live, entry)
            nursery.start_soon(self._set_formats, reply)
        return reply

    async def _set_formats(self, reply: pb.ClusterStatusReply) -> None:
        """Set the state formats of the cluster and of storage instances, if the metadata store answers."""
        formats = None
        with trio.move_on_after(_HEALTH_SECONDS):
            try:
                formats = await read_formats(self._parts.metadata, self._parts.namespace)
            except KafscaleError as error:
                log.warning("state format not read", error=str(error))
        if formats is None:
            return
        reply.state_format = formats.cluster
        for entry in reply.members:
            if entry.service == "storage":
                # A release without intakes has no register.
                entry.state_format = formats.runs.get(entry.run_id, 1)
                entry.intake = entry.state_format >= INTAKE_STATE_FORMAT

    async def _count(self, environment: Environment, reply: pb.ClusterStatusReply) -> Counter[str]:
        """Count what each run owns, and set the totals in ``reply``."""
        parts = self._parts
        owned: Counter[str] = Counter()
        storages = {live.run_id for live in parts.storages.view.present}
        leaders = {live.member.node_id: live.run_id for live in parts.gateways.view.present}
        brokers = environment.brokers.at(environment.listeners[0])
        for topic in list(environment.catalog.view.by_name.values()):
            if not topic.live:
                continue
            reply.topics += 1
            reply.partitions += topic.partitions
            for partition in range(topic.partitions):
                found = parts.ownership.get(topic.id, partition)
                if found is not None and found.owner in storages:
                    owned[found.owner] += 1
                else:
                    reply.partitions_without_owner += 1
                owned[leaders.get(brokers.leader(topic.id, partition), "")] += 1
            # There may be many topics; let other tasks run.
            await trio.lowlevel.checkpoint()
        for shard in range(GROUP_SHARDS):
            owner = parts.coordinators.view.shard_owner(shard)
            if owner is not None:
                owned[owner.run_id] += 1
        return owned

    async def ask(self, live: LiveMember, entry: pb.ClusterMember) -> None:
        """Ask the member for its health and set it in ``entry``."""
        if live.address in ("", self._parts.address):
            report = self._health.report()
            entry.health = pb.ClusterMember.READY if report.ready else pb.ClusterMember.NOT_READY
            findings = (
                f"{name} {check['state']}: {check['reason']}"
                for name, check in report.checks.items()
                if "reason" in check
            )
            entry.detail = "; ".join(findings)
            return
        try:
            async with self._connect(live) as peer:
                ready = await peer.serving(timeout=_HEALTH_SECONDS)
        except KafscaleError as error:
            entry.health, entry.detail = pb.ClusterMember.UNREACHABLE, str(error)
            return
        entry.health = pb.ClusterMember.READY if ready else pb.ClusterMember.NOT_READY


def describe(entry: pb.ClusterMember, service: str, live: LiveMember) -> None:
    """Set the fields of ``entry``, except the health and what the member owns."""
    member = live.member
    entry.service, entry.run_id, entry.address = service, live.run_id, live.address
    entry.version, entry.started_ms = member.version, member.started_ms
    entry.leaving, entry.draining = member.leaving, member.draining
    if service == "storage":
        entry.known_state_format = known_state_format(live)
    if service == "gateway":
        entry.node_id = member.node_id
        entry.listeners.extend(f"{each.name}://{each.host}:{each.port}" for each in member.listeners)
