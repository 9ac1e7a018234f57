"""The state format of a cluster: what it is, which storage instances use it, and the step that finalizes an upgrade.

Storage runs write partition states of the cluster's format as of their start. They have an intake from format 2 on, and
rewrite logs from format 3 on.
Releases that do not know a format refuse partitions whose state has it. The format is raised only after an upgrade of
all storage instances, because otherwise partitions that are assigned to an older one would be unavailable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import grpc
import structlog

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Get, MetadataStore, Put, Unchanged
from kafscale.metadata.members import LiveMember, live_member
from kafscale.metadata.topic_values import INTAKE_STATE_FORMAT, NEWEST_STATE_FORMAT, ClusterInfo
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.metadata_pb2 import IntakeRegister

log = structlog.get_logger()

_STATUS = grpc.StatusCode
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Formats:
    """``cluster``: its state format. ``runs``: that of the states which a storage run writes, by run id."""

    cluster: int
    runs: Mapping[str, int]


async def read_formats(metadata: MetadataStore, namespace: str) -> Formats:
    """Raises Unavailable, Refused, CorruptData."""
    prefix = paths.intake_registers_prefix(namespace)
    registers = await metadata.read_prefix(prefix)
    cluster = await metadata.get(paths.cluster_key(namespace))
    runs = {
        paths.run_of_intake_register(namespace, item.key): _written_by(IntakeRegister.FromString(item.value))
        for item in registers.items
    }
    return Formats(ClusterInfo.read(cluster).state_format if cluster is not None else 1, runs)


def _written_by(register: IntakeRegister) -> int:
    return register.state_format or (INTAKE_STATE_FORMAT if register.intake else 1)


def known_state_format(live: LiveMember) -> int:
    """Return the highest state format that a storage instance knows."""
    return max(live.member.state_format, 1)


async def finalize_upgrade(
    metadata: MetadataStore, namespace: str, request: pb.FinalizeUpgradeRequest
) -> pb.FinalizeUpgradeReply:
    """Raise the state format of the cluster, or only check that with ``validate_only``.

    Raises StatusError; Unavailable, after which the format may be raised; Refused.
    """
    wanted = request.state_format or NEWEST_STATE_FORMAT
    if wanted > NEWEST_STATE_FORMAT:
        text = (
            f"This gateway knows state formats up to {NEWEST_STATE_FORMAT}, not {wanted}. Upgrade the gateways first."
        )
        raise StatusError(_STATUS.INVALID_ARGUMENT, text)
    key = paths.cluster_key(namespace)
    for _ in range(_ATTEMPTS):
        item = (await metadata.txn((), [Get(key)])).reads[0]
        if item is None:
            raise Unavailable("the cluster is being created")
        cluster = ClusterInfo.read(item)
        reply = pb.FinalizeUpgradeReply(before=cluster.state_format, state_format=wanted)
        if wanted < cluster.state_format:
            text = (
                f"The cluster has state format {cluster.state_format}, which cannot be lowered to {wanted}: storage "
                "may have stored records in it already. There is no way back to a release that does not know it."
            )
            raise StatusError(_STATUS.FAILED_PRECONDITION, text)
        if wanted == cluster.state_format:
            return reply
        await _check_storage(metadata, namespace, wanted)
        if request.validate_only:
            return reply
        # Members are not compared: what a run knows never changes, and nothing can exclude that an older release joins
        # right afterwards. That is safe, because it refuses partitions whose states have the new format.
        value = replace(cluster, state_format=wanted).value()
        if (await metadata.txn([Unchanged(key, item.mod_revision)], [Put(key, value)])).succeeded:
            log.info("state format raised", before=cluster.state_format, state_format=wanted)
            return reply
    raise Unavailable("the cluster's value keeps changing")


async def _check_storage(metadata: MetadataStore, namespace: str, wanted: int) -> None:
    """Raise StatusError unless there are storage instances and all of them know the format."""
    members = [
        live_member(item) for item in (await metadata.read_prefix(paths.members_prefix(namespace, "storage"))).items
    ]
    if not members:
        text = f"No storage instance is registered, so it is unknown whether all of them know state format {wanted}."
        raise StatusError(_STATUS.FAILED_PRECONDITION, text)
    older = [live for live in members if known_state_format(live) < wanted]
    if older:
        names = ", ".join(
            f"{live.address or 'in process'} (run {live.run_id}, version {live.member.version or 'unknown'})"
            for live in older
        )
        text = (
            f"These storage instances do not know state format {wanted}: {names}. Upgrade them first. An instance that "
            "was killed stays registered until its lease expires."
        )
        raise StatusError(_STATUS.FAILED_PRECONDITION, text)
