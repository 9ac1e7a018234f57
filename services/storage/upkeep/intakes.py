"""Remove the intakes of ended runs when no partition needs them any more.

A register is sealed first, also if no take-over needed that. States are read after that: from then on none can name the
run again. If none names it, everything that its chain has is in segments. Then the mark `done` is put, which tells the
rest of a removed chain from one whose metadata was lost, the objects are deleted, and last the register. The seals and
the mark stay for 30 days: a process of the run that was frozen all the time must find the seal when it wakes up.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import aclosing

import structlog
import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError
from kafscale.metadata.interface import Delete, MetadataStore, Unchanged
from kafscale.metadata.members import Members
from kafscale.metadata.membership import Membership
from kafscale.objects.interface import ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.v1.metadata_pb2 import IntakeRegister, PartitionState
from services.storage.intake.chain import Chain
from services.storage.intake.known import runs_with_intakes
from services.storage.intake.register import StillMember, seal_register

log = structlog.get_logger()

_KEPT_MS = 30 * 24 * 3600 * 1000
_TIDY_SECONDS = 24 * 3600.0


class IntakeCollector:
    """Looks for intakes of ended runs every ``check_seconds`` while `run` is running, on the first of all members."""

    def __init__(
        self,
        *,
        members: Members,
        membership: Membership,
        metadata: MetadataStore,
        objects: ObjectStore,
        namespace: str,
        now_ms: Callable[[], int],
        check_seconds: float,
    ) -> None:
        self._members = members
        self._membership = membership
        self._metadata = metadata
        self._objects = objects
        self._namespace = namespace
        self._now_ms = now_ms
        self._check_seconds = check_seconds

    async def run(self) -> None:
        tidied, looked_at, left = -math.inf, frozenset[str](), True
        while True:
            await trio.sleep(self._check_seconds)
            live = frozenset(self._members.view.by_run_id)
            if min(live, default="") != self._membership.run_id or (live == looked_at and not left):
                continue
            try:
                runs = await self._runs()
                left = bool(await self._collect(runs))
                looked_at = live
                if any(runs.values()) and tidied <= trio.current_time() - _TIDY_SECONDS:
                    tidied = trio.current_time()
                    await self._tidy()
            except KafscaleError as error:
                log.warning("intakes of ended runs not removed, retrying later", error=str(error))

    async def _runs(self) -> dict[str, bool]:
        """Return the runs with registers, and whether each may have intake objects."""
        registers = await self._metadata.read_prefix(paths.intake_registers_prefix(self._namespace))
        return {
            paths.run_of_intake_register(self._namespace, item.key): IntakeRegister.FromString(item.value).intake
            for item in registers.items
        }

    async def _collect(self, runs: Mapping[str, bool]) -> set[str]:
        """Remove what no partition needs of ended runs. Return those that are left."""
        live = self._members.view.by_run_id
        ended = {run_id for run_id in runs if run_id not in live}
        sealed = {run_id for run_id in sorted(ended) if await self._seal(run_id)}
        if sealed:
            states = await self._metadata.read_prefix(paths.partition_states_prefix(self._namespace))
            for item in states.items:
                state = PartitionState.FromString(item.value)
                sealed -= {state.owner, state.tail.run_id}
        for run_id in sorted(sealed):
            if runs[run_id]:
                await self._remove_chain(run_id)
            await self._remove_register(run_id)
        return ended - sealed

    async def _seal(self, run_id: str) -> bool:
        """Seal the register and the chain of a run, unless it is alive. Return whether they are sealed."""
        try:
            if await seal_register(self._metadata, self._namespace, run_id):
                await self._chain(run_id).seal()
        except StillMember:
            return False
        except CorruptData as error:
            log.error("intake damaged, it is kept", run=run_id, reason=str(error))
            return False
        return True

    async def _remove_chain(self, run_id: str) -> None:
        mark = str(paths.IntakeKey(self._namespace, run_id, None))
        try:
            await self._objects.put_if_absent(mark, str(self._now_ms()).encode())
        except PreconditionFailed:
            log.debug("intake already marked as done", run=run_id)
        removed = 0
        async for numbers in self._chain(run_id).pages():
            keys = [paths.intake_key(self._namespace, run_id, number) for number in numbers]
            await self._objects.delete_many(keys, unused=True)
            removed += len(numbers)
        log.info("intake of an ended run removed", run=run_id, objects=removed)

    async def _remove_register(self, run_id: str) -> None:
        register = paths.intake_register_key(self._namespace, run_id)
        item = await self._metadata.get(register)
        if item is not None:
            await self._metadata.txn([Unchanged(register, item.mod_revision)], [Delete(register)])

    async def _tidy(self) -> None:
        """Delete what is left of intakes that were removed 30 days ago."""
        async with aclosing(runs_with_intakes(self._objects, self._namespace)) as run_ids:
            async for run_id in run_ids:
                if await self._is_old(run_id):
                    await self._remove_rest(run_id)

    async def _remove_rest(self, run_id: str) -> None:
        """Delete the seals of an intake, and its mark only when they are gone.

        Without the mark, a seal would look like an intake that the metadata has lost.
        """
        prefix = paths.intake_prefix(self._namespace, run_id)
        mark = str(paths.IntakeKey(self._namespace, run_id, None))
        seals = [info.key for info in await self._objects.list_from(prefix) if info.key != mark]
        if seals:
            await self._objects.delete_many(seals)
        if [info.key for info in await self._objects.list_from(prefix)] == [mark]:
            await self._objects.delete_many([mark], unused=True)

    async def _is_old(self, run_id: str) -> bool:
        """Return whether the intake of a run was removed more than 30 days ago."""
        try:
            mark = await self._objects.get(str(paths.IntakeKey(self._namespace, run_id, None)))
        except ObjectNotFound:
            return False
        return mark.body.isdigit() and int(mark.body) <= self._now_ms() - _KEPT_MS

    def _chain(self, run_id: str) -> Chain:
        return Chain(self._objects, self._namespace, run_id, now_ms=self._now_ms)
