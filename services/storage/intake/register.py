"""The register of a storage run in the metadata store: whether it may still take over partitions and use its intake.

It is written before the run's first take-over, and every take-over by the run compares that it is open. Another run
seals it once the member key is gone; from then on no state can name the run again. The collector removes it after the
chain.
"""

from dataclasses import dataclass

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.metadata.interface import Get, MetadataStore, Put, Unchanged
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.metadata.topic_values import INTAKE_STATE_FORMAT, NEWEST_STATE_FORMAT, ClusterInfo
from kafscale.v1.metadata_pb2 import IntakeRegister

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Register:
    """The open register of this run. ``state_format``: that of the states which it writes."""

    run_id: str
    key: str
    revision: int
    state_format: int

    @property
    def has_intake(self) -> bool:
        return self.state_format >= INTAKE_STATE_FORMAT


class RegisterMissing(KafscaleError):
    """A state names a run without a register, so the metadata was rolled back."""


class StillMember(KafscaleError):
    """The run is a live member, so its register cannot be sealed by another one."""


async def open_register(metadata: MetadataStore, namespace: str, run_id: str) -> Register:
    """Write the register of a new run, retrying until that succeeds. The run keeps the state format that it reads."""
    key, cluster_key = paths.intake_register_key(namespace, run_id), paths.cluster_key(namespace)
    outage = Outage("intake register not written", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    while True:
        try:
            cluster, there = (await metadata.txn((), [Get(cluster_key), Get(key)])).reads
            state_format = ClusterInfo.read(cluster).state_format if cluster is not None else 1
            # A later release may have raised it further. This one must not write states that it refuses.
            state_format = min(state_format, NEWEST_STATE_FORMAT)
            if there is not None:
                # An earlier attempt was applied; run ids are not used twice. The cluster's format may be higher by now.
                written = IntakeRegister.FromString(there.value).state_format
                return Register(run_id, key, there.mod_revision, written)
            value = IntakeRegister(
                format=_FORMAT, intake=state_format >= INTAKE_STATE_FORMAT, state_format=state_format
            )
            result = await metadata.txn([Unchanged(key, 0)], [Put(key, value.SerializeToString())])
        except STORE_FAILURES as error:
            await outage.pause(error)
            continue
        if result.succeeded:
            return Register(run_id, key, result.revision, state_format)


async def seal_register(metadata: MetadataStore, namespace: str, run_id: str, *, own: bool = False) -> bool:
    """Seal the register of a run, unless it is sealed. Return whether the run may have intake objects.

    ``own``: by the run itself, which needs not be gone. Raises RegisterMissing, StillMember, Unavailable.
    """
    key = paths.intake_register_key(namespace, run_id)
    member_key = paths.member_key(namespace, "storage", run_id)
    while True:
        register, member = (await metadata.txn((), [Get(key), Get(member_key)])).reads
        if register is None:
            raise RegisterMissing(f"the intake register of run {run_id} is missing")
        value = IntakeRegister.FromString(register.value)
        if value.sealed:
            return value.intake
        if member is not None and not own:
            raise StillMember(f"run {run_id} is alive")
        compares = [Unchanged(key, register.mod_revision)]
        if not own:
            compares.append(Unchanged(member_key, 0))
        value.sealed = True
        if (await metadata.txn(compares, [Put(key, value.SerializeToString())])).succeeded:
            return value.intake
