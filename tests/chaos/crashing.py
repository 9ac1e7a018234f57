"""A storage instance or indexer that kills itself with SIGKILL directly before or after a request to one of its stores.

`CrashPoint.command` starts it. It runs the main function of the service, but with an object store and a metadata store
that count the requests of one step. The steps are named in `STEPS`.
"""

import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeVar
from unittest.mock import patch

import trio

from kafscale import paths
from kafscale.config import stores
from kafscale.intake.format import IntakeHeader, Kind
from kafscale.metadata import etcd
from kafscale.metadata.etcd import EtcdMetadataStore
from kafscale.metadata.interface import Delete, Operation, Put, TxnResult, Unchanged
from kafscale.objects.interface import MAX_KEYS, Body, Object, ObjectInfo
from kafscale.objects.s3 import S3ObjectStore
from kafscale.process.process import run_process
from kafscale.process.startup import check_shared
from kafscale.rewritten.keys import RewrittenKey, RootKey, parse_rewritten_key
from kafscale.v1.metadata_pb2 import IntakeRegister, Member, PartitionState
from services.indexer import __main__ as indexer
from tests.chaos.storage import run_storage, soon_again

T = TypeVar("T")
ARM = signal.SIGUSR1


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a store: the method, and of its arguments the keys or the prefix, the body and the operations.

    ``root_follows``: it is the first one that writes a state with this root.
    """

    method: str
    keys: Sequence[str] = ()
    body: bytes = b""
    then: Sequence[Operation] = ()
    root_follows: bool = False


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """When the process kills itself: at the request ``number`` of ``step``, before it is sent or after its answer.

    Requests of partitions count only if they are for ``topic``. If ``at_signal``, they count from the signal `ARM` on,
    and from then on requests of the step ``blocked`` are never sent.
    """

    namespace: str
    topic: str
    step: str
    after: bool
    number: int = 1
    at_signal: bool = True
    blocked: str = ""
    service: str = "storage"

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.chaos.crashing", json.dumps(asdict(self))]

    @property
    def message(self) -> str:
        """The line that the process writes before it kills itself."""
        return f"crash point: {'after' if self.after else 'before'} {self.step}, number {self.number}"

    def intake(self, request: Request, method: str) -> list[int]:
        """Return the numbers of the intake objects that a request of ``method`` names."""
        found = [paths.parse_intake_key(key) for key in request.keys] if request.method == method else []
        return [key.number for key in found if key is not None and key.number is not None]

    def puts_intake(self, request: Request, kind: Kind, *, checkpoint: int = 0) -> bool:
        """Return whether an intake object of ``kind`` is put that names at least this checkpoint."""
        if not self.intake(request, "put_if_absent"):
            return False
        header = IntakeHeader.parse(request.body)
        return header.kind is kind and header.checkpoint >= checkpoint

    def segment(self, request: Request, method: str) -> bool:
        """Return whether a request of ``method`` names a segment of the topic."""
        found = [paths.parse_segment_key(key) for key in request.keys] if request.method == method else []
        return any(key is not None and key.topic == self.topic and key.kind == "kfs" for key in found)

    def rewritten(self, request: Request, method: str) -> list[RewrittenKey | RootKey]:
        """Return the keys of the topic's rewritten objects, indexes and roots that a request of ``method`` names."""
        found = [parse_rewritten_key(key) for key in request.keys] if request.method == method else []
        return [key for key in found if key is not None and key.topic == self.topic]

    def names_root(self, request: Request, method: str) -> bool:
        return any(isinstance(key, RootKey) for key in self.rewritten(request, method))

    def names_rewritten(self, request: Request, method: str, *kinds: str) -> bool:
        found = self.rewritten(request, method)
        return any(isinstance(key, RewrittenKey) and key.kind in kinds for key in found)

    def below(self, request: Request, method: str, prefix: str) -> bool:
        return request.method == method and any(key.startswith(prefix) for key in request.keys)

    def values(self, request: Request, prefix: str) -> list[bytes]:
        """Return what a transaction puts at keys that begin with ``prefix``."""
        return [one.value for one in request.then if isinstance(one, Put) and one.key.startswith(prefix)]

    def states(self, request: Request) -> list[PartitionState]:
        prefix = f"{paths.partition_states_prefix(self.namespace)}{self.topic}/"
        return [PartitionState.FromString(value) for value in self.values(request, prefix)]

    def registers(self, request: Request) -> list[IntakeRegister]:
        prefix = paths.intake_registers_prefix(self.namespace)
        return [IntakeRegister.FromString(value) for value in self.values(request, prefix)]

    def members(self, request: Request) -> list[Member]:
        values = self.values(request, paths.members_prefix(self.namespace, "storage"))
        return [Member.FromString(value) for value in values]


Step = Callable[[CrashPoint, Request], bool]


def _lists_intake(at: CrashPoint, request: Request) -> bool:
    prefix = paths.intakes_prefix(at.namespace)
    # The listing that looks for all intakes has just this prefix.
    return at.below(request, "list_from", prefix) and request.keys[0] != prefix


def _puts_mark(_: CrashPoint, request: Request) -> bool:
    found = [paths.parse_intake_key(key) for key in request.keys] if request.method == "put_if_absent" else []
    return any(key is not None and key.number is None for key in found)


def _deletes_register(at: CrashPoint, request: Request) -> bool:
    prefix = paths.intake_registers_prefix(at.namespace)
    return any(isinstance(one, Delete) and one.key.startswith(prefix) for one in request.then)


def _puts_snapshot(at: CrashPoint, request: Request) -> bool:
    return at.below(request, "put_if_absent", paths.producers_prefix(at.namespace, at.topic, 0))


def _lists_log(at: CrashPoint, request: Request) -> bool:
    return at.below(request, "list_from", paths.partition_prefix(at.namespace, at.topic, 0))


def _settles_epoch(at: CrashPoint, request: Request) -> bool:
    return bool(at.values(request, paths.epoch_history_key(at.namespace, at.topic, 0)))


STEPS: dict[str, Step] = {
    # Objects.
    "put an intake object": lambda at, request: at.puts_intake(request, Kind.RECORDS),
    "put a newer checkpoint": lambda at, request: at.puts_intake(request, Kind.RECORDS, checkpoint=2),
    "put a seal": lambda at, request: at.puts_intake(request, Kind.SEAL),
    "put the mark of a removed intake": _puts_mark,
    "list the intake": _lists_intake,
    "read the intake": lambda at, request: bool(at.intake(request, "get")),
    "delete intake objects": lambda at, request: bool(at.intake(request, "delete_many")),
    "list the log": _lists_log,
    "put a segment": lambda at, request: at.segment(request, "put_if_absent"),
    "replace a segment": lambda at, request: at.segment(request, "replace_if_match"),
    "put a producer snapshot": _puts_snapshot,
    "put a root": lambda at, request: at.names_root(request, "put_if_absent"),
    "delete what a root has replaced": lambda at, request: at.segment(request, "delete_many"),
    # A new owner sweeps before it commits a root.
    "sweep uncommitted roots": lambda at, request: at.names_root(request, "delete_many"),
    "sweep uncommitted objects": lambda at, request: at.names_rewritten(request, "delete_many", "kfs", "index"),
    "put a rewritten index": lambda at, request: at.names_rewritten(request, "put_if_absent", "index"),
    "put a rewritten object": lambda at, request: at.names_rewritten(request, "put_if_absent", "kfs"),
    # Metadata.
    "register": lambda at, request: any(not member.leaving for member in at.members(request)),
    "announce leaving": lambda at, request: any(member.leaving for member in at.members(request)),
    "revoke the lease": lambda _, request: request.method == "revoke_lease",
    "open the intake register": lambda at, request: any(not one.sealed for one in at.registers(request)),
    "seal the intake register": lambda at, request: any(one.sealed for one in at.registers(request)),
    "delete the intake register": _deletes_register,
    "become the owner with a tail": lambda at, request: any(
        state.owner and state.HasField("tail") for state in at.states(request)
    ),
    "settle the epoch": _settles_epoch,
    "commit": lambda at, request: any(
        state.owner and state.high_watermark and not state.HasField("tail") for state in at.states(request)
    ),
    "commit a producer snapshot": lambda at, request: any(
        state.owner and state.producer_snapshot for state in at.states(request)
    ),
    "commit a root": lambda _, request: request.root_follows,
    "release": lambda at, request: any(not state.owner and not state.HasField("tail") for state in at.states(request)),
    "release with a tail": lambda at, request: any(
        not state.owner and state.HasField("tail") for state in at.states(request)
    ),
}


class Crash:
    """Counts the requests of a step, and ends the process at the chosen one."""

    def __init__(self, point: CrashPoint) -> None:
        self._point = point
        self._left = point.number
        self._root = 0
        self.armed = not point.at_signal

    async def around(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        root = max((state.root.number for state in self._point.states(request)), default=0)
        if root > self._root:
            self._root, request = root, replace(request, root_follows=True)
        if not self.armed:
            return await send()
        if self._point.blocked and STEPS[self._point.blocked](self._point, request):
            await trio.sleep_forever()
        if not STEPS[self._point.step](self._point, request):
            return await send()
        self._left -= 1
        if self._left:
            return await send()
        if self._point.after:
            await send()
        os.write(sys.stderr.fileno(), f"{self._point.message}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a process goes on after SIGKILL")


def _crashing_objects(crash: Crash) -> type[S3ObjectStore]:
    class Crashing(S3ObjectStore):
        async def put_if_absent(self, key: str, body: Body, *, send_seconds: float = 0.0) -> str:
            request = Request("put_if_absent", [key], bytes(body))
            return await crash.around(
                request, lambda: super(Crashing, self).put_if_absent(key, body, send_seconds=send_seconds)
            )

        async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
            request = Request("replace_if_match", [key], bytes(body))
            return await crash.around(request, lambda: super(Crashing, self).replace_if_match(key, body, etag))

        async def get(self, key: str) -> Object:
            return await crash.around(Request("get", [key]), lambda: super(Crashing, self).get(key))

        async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
            request = Request("list_from", [prefix])
            return await crash.around(request, lambda: super(Crashing, self).list_from(prefix, start_after, limit))

        async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
            request = Request("delete_many", list(keys))
            await crash.around(
                request, lambda: super(Crashing, self).delete_many(request.keys, dated=dated, unused=unused)
            )

    return Crashing


def _crashing_metadata(crash: Crash) -> type[EtcdMetadataStore]:
    class Crashing(EtcdMetadataStore):
        async def txn(
            self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
        ) -> TxnResult:
            request = Request("txn", then=then)
            return await crash.around(request, lambda: super(Crashing, self).txn(compares, then, otherwise))

        async def revoke_lease(self, lease: int) -> None:
            await crash.around(Request("revoke_lease"), lambda: super(Crashing, self).revoke_lease(lease))

    return Crashing


def _run_indexer() -> int:
    return run_process(
        indexer.SETTINGS, indexer.serve, service="indexer", check=check_shared, grace_ms=indexer.grace_ms
    )


_SERVICES = {"storage": run_storage, "indexer": _run_indexer}


def main() -> int:
    """Run a service until it crashes."""
    point = CrashPoint(**json.loads(sys.argv[1]))
    crash = Crash(point)

    def arm(*_: object) -> None:
        crash.armed = True

    signal.signal(ARM, arm)
    with (
        soon_again(),
        patch.object(stores, "S3ObjectStore", _crashing_objects(crash)),
        patch.object(etcd, "EtcdMetadataStore", _crashing_metadata(crash)),
    ):
        return _SERVICES[point.service]()


if __name__ == "__main__":
    sys.exit(main())
