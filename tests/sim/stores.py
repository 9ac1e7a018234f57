"""The stores as seen by a process, over a network that delays messages but does not drop or repeat requests.

An operation is a message. Once sent, it is executed even if its sender freezes, dies or gives up. A write to the object
store is rejected if it arrives more than `MemoryObjectStore.settle_seconds` after it was signed. If it arrives in time,
it is executed at once, except for a PUT, which may take effect `_VERY_LATE_SECONDS` later. A metadata transaction may
be applied up to `LATEST_SECONDS` later.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

import trio

from kafscale import paths
from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.interface import (
    Compacted,
    Delete,
    Event,
    KeyValue,
    Operation,
    Page,
    Put,
    Snapshot,
    TxnResult,
    Unchanged,
    Watch,
)
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.objects.interface import MAX_KEYS, Body, Object, ObjectInfo, ObjectNotFound
from kafscale.objects.memory import MemoryObjectStore
from kafscale.v1.metadata_pb2 import Topic
from tests.sim.faults import Faults
from tests.sim.process import Process
from tests.sim.trace import Trace

T = TypeVar("T")
Family = Literal["object", "metadata"]

LATEST_SECONDS = 1.5
_VERY_LATE_SECONDS = 4.0
_LONGEST_ANSWER_SECONDS = 0.9
_PATIENCE_SECONDS = 0.4
"""The time after which a client of a store gives up an operation."""


class Network:
    """Delivers messages, whatever happens to the sender. ``at_point`` may crash or freeze a process."""

    def __init__(
        self, nursery: trio.Nursery, faults: Faults, trace: Trace, at_point: Callable[[Process, str], None]
    ) -> None:
        self.nursery = nursery
        self.faults = faults
        self.trace = trace
        self.at_point = at_point
        self.down: set[Family] = set()
        # The endpoint currently shows an empty replica.
        self.empty = False
        # The metadata store currently accepts no writes.
        self.full = False
        # The number of requests that senders have given up and that are not executed yet.
        self.strays = 0

    async def read(self, process: Process, family: Family, do: Callable[[], Awaitable[T]]) -> T:
        await self._reach(process, family)
        if self.faults.hits(f"{family}-error"):
            raise Unavailable("503")
        await self._travel(family)
        result = await self._carried(do)
        slow = self.faults.hits(f"{family}-slow-answer")
        await trio.sleep(self.faults.between(0.05, _LONGEST_ANSWER_SECONDS) if slow else self.faults.latency())
        return result

    async def write(
        self,
        process: Process,
        family: Family,
        what: str,
        do: Callable[[], Awaitable[T]],
        *,
        longest: float,
        signed: float | None = None,
    ) -> T:
        faults = self.faults
        if what.startswith("DELETE") and ".kfs" in what:
            self.at_point(process, f"signing {what}")
            if process.frozen:
                await trio.lowlevel.checkpoint()
        signed_at = trio.current_time() if signed is None else signed
        self.at_point(process, f"before {what}")
        await self._reach(process, family)
        if faults.hits(f"{family}-error"):
            raise Unavailable("503")
        if (self.empty and family == "object") or (self.full and what.startswith(("TXN", "GRANT"))):
            raise Unavailable("no space")
        very_late = what.startswith("PUT") and faults.hits("put-very-late")

        async def land() -> T:
            if family == "object" and not very_late and trio.current_time() > signed_at + longest:
                raise Unavailable("403: the signature has expired")
            result = await do()
            self.trace.add(f"done: {what}", by=process.name)
            return result

        async def arrive() -> T:
            await self._travel(family)
            return await land()

        if very_late or faults.hits(_late(family, what)):
            after = faults.between(0.05, _VERY_LATE_SECONDS if very_late else longest)
            self.trace.add(f"fault: {what} lands {after:.3f} s later", by=process.name)
            self.nursery.start_soon(self._stray, after, land)
            await trio.sleep(_PATIENCE_SECONDS)
            raise Unavailable("timed out")
        result = await self._carried(arrive)
        self.at_point(process, f"after {what}")
        if faults.hits(f"{family}-lost-answer"):
            self.trace.add(f"fault: the answer to {what} is lost", by=process.name)
            await trio.sleep(_PATIENCE_SECONDS)
            raise Unavailable("the answer was lost")
        await trio.sleep(faults.latency())
        return result

    async def _reach(self, process: Process, family: Family) -> None:
        if process.dead:
            await trio.sleep_forever()
        if family in self.down or (process.cut_from_metadata if family == "metadata" else process.cut_from_objects):
            await trio.sleep(_PATIENCE_SECONDS)
            raise Unavailable("no route")

    async def _travel(self, family: Family) -> None:
        slow = self.faults.hits(f"{family}-slow")
        await trio.sleep(self.faults.between(0.05, _PATIENCE_SECONDS) if slow else self.faults.latency())

    async def _carried(self, do: Callable[[], Awaitable[T]]) -> T:
        """Run in a task of the network, so that a store's steps do not freeze or end with the caller."""
        done = trio.Event()
        results: list[T] = []
        errors: list[KafscaleError] = []

        async def carry() -> None:
            try:
                results.append(await do())
            except KafscaleError as error:
                errors.append(error)
            done.set()

        self.nursery.start_soon(carry)
        await done.wait()
        if errors:
            raise errors[0]
        return results[0]

    def later(self, do: Callable[[], Awaitable[object]]) -> None:
        """Execute an operation later than its timeout."""
        self.nursery.start_soon(self._stray, self.faults.between(0.5, _VERY_LATE_SECONDS), do)

    async def _stray(self, after: float, do: Callable[[], Awaitable[object]]) -> None:
        self.strays += 1
        await trio.sleep(after)
        try:
            await do()
        except KafscaleError as error:
            self.trace.add(f"a late request fails: {type(error).__name__}", by="network")
        self.strays -= 1


def _late(family: Family, what: str) -> str:
    if what.startswith("DELETE"):
        return "delete-late"
    return "commit-late" if "/partitions/" in what else f"{family}-late"


class Metadata(MemoryMetadataStore):
    """A metadata store that calls ``named`` when the live topic of a name changes, with an empty id for none."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self._prefix = paths.topics_prefix(namespace)
        self.named: Callable[[str, bytes], None] = lambda _name, _topic_id: None

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        result = await super().txn(compares, then, otherwise)
        for operation in then if result.succeeded else otherwise:
            if isinstance(operation, Put | Delete) and operation.key.startswith(self._prefix):
                topic = Topic.FromString(operation.value) if isinstance(operation, Put) else Topic()
                live = topic.id if topic.state == Topic.LIVE else b""
                self.named(operation.key.removeprefix(self._prefix), live)
        return result


class RemoteObjects:
    """The `ObjectStore` of a process."""

    def __init__(self, store: MemoryObjectStore, network: Network, process: Process) -> None:
        self._store = store
        self._network = network
        self._process = process
        self.settle_seconds = store.settle_seconds
        self.clock_skew_seconds: float | None = None

    def now(self) -> float:
        return trio.current_time()

    async def put_if_absent(self, key: str, body: Body, *, send_seconds: float = 0.0) -> str:
        data = bytes(body)
        return await self._write(f"PUT {key}", lambda: self._store.put_if_absent(key, data))

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        data = bytes(body)
        return await self._write(f"PUT if {etag} {key}", lambda: self._store.replace_if_match(key, data, etag))

    async def get(self, key: str) -> Object:
        found = await self._read(key, lambda: self._store.get(key))
        return Object(self._received(key, found.body), found.etag)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._received(key, await self._read(key, lambda: self._store.get_range(key, start, length)))

    async def head(self, key: str) -> ObjectInfo:
        return await self._read(key, lambda: self._store.head(key))

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        async def look() -> list[ObjectInfo]:
            if self._network.empty:
                self._network.trace.read_wrongly(self._process.name)
                return []
            return await self._store.list_from(prefix, start_after, limit)

        if not self._network.faults.hits("listing-torn"):
            return await self._read("", look)
        # A listing may include any subset of concurrent changes. It is from one replica, which may be the empty one.
        before, empty = await self._read("", look), self._network.empty
        await trio.sleep(self._network.faults.between(0.0, 0.1))
        after = await self._read("", look)
        if len(before) == limit or len(after) == limit or empty or self._network.empty:
            return after
        sure = {info.key for info in before} & {info.key for info in after}
        shown = {info.key: info for info in before} | {info.key: info for info in after}
        dice = self._network.faults.dice
        return [shown[key] for key in sorted(shown) if key in sure or dice.random() < 0.5]

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        doomed = list(keys)
        if len(doomed) > 1 and self._network.faults.dice.random() < 0.5:
            # Each deletion is a separate request, and some may arrive later than others.
            errors: list[KafscaleError] = []

            async def delete_one(key: str) -> None:
                try:
                    await self._delete([key], dated)
                except KafscaleError as error:
                    errors.append(error)

            async with trio.open_nursery() as nursery:
                for key in doomed:
                    nursery.start_soon(delete_one, key)
            if errors:
                raise errors[0]
        else:
            await self._delete(doomed, dated)

    async def _delete(self, keys: list[str], dated: float | None) -> None:
        # Without a date, the date is the time of sending, after a freeze before it.
        await self._write(f"DELETE {' '.join(keys)}", lambda: self._store.delete_many(keys), signed=dated)

    async def _read(self, key: str, do: Callable[[], Awaitable[T]]) -> T:
        async def look() -> T:
            if self._network.empty and key:
                self._network.trace.read_wrongly(self._process.name)
                raise ObjectNotFound(key)
            return await do()

        result = await self._network.read(self._process, "object", look)
        self._compare_clocks()
        return result

    def _received(self, key: str, body: bytes) -> bytes:
        # Do not damage stages, because they are read again only after the end of a simulation.
        if not body or "/~stages/" in key or not self._network.faults.hits("object-garbled"):
            return body
        self._network.trace.add(f"fault: {key} is garbled", by=self._process.name)
        self._network.trace.read_wrongly(self._process.name)
        wrong = bytearray(body)
        wrong[self._network.faults.dice.randrange(len(wrong))] ^= 1 << self._network.faults.dice.randrange(8)
        return bytes(wrong)

    async def _write(self, what: str, do: Callable[[], Awaitable[T]], *, signed: float | None = None) -> T:
        longest = self.settle_seconds
        result = await self._network.write(self._process, "object", what, do, longest=longest, signed=signed)
        self._compare_clocks()
        return result

    def _compare_clocks(self) -> None:
        """Compare clocks. Each answer has the store's time."""
        self.clock_skew_seconds = -self._process.wall_ahead


class RemoteMetadata:
    """The `MetadataStore` of a process."""

    def __init__(self, store: MemoryMetadataStore, network: Network, process: Process) -> None:
        self._store = store
        self._network = network
        self._process = process

    async def get(self, key: str) -> KeyValue | None:
        return await self._network.read(self._process, "metadata", lambda: self._store.get(key))

    async def read_prefix(self, prefix: str) -> Snapshot:
        return await self._network.read(self._process, "metadata", lambda: self._store.read_prefix(prefix))

    async def read_page(self, prefix: str, *, after: str = "", revision: int = 0) -> Page:
        return await self._network.read(
            self._process, "metadata", lambda: self._store.read_page(prefix, after=after, revision=revision)
        )

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        written = [operation.key.removeprefix("kafscale/") for operation in then if isinstance(operation, Put)]
        if not written:
            return await self._network.read(
                self._process, "metadata", lambda: self._store.txn(compares, then, otherwise)
            )
        what = f"TXN {' '.join(written)}"

        async def do() -> TxnResult:
            result = await self._store.txn(compares, then, otherwise)
            if not result.succeeded:
                self._network.trace.add(f"refused: {what}", by=self._process.name)
            return result

        return await self._write(what, do)

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Watch]:
        async with self._store.watch(prefix, from_revision) as watch:
            yield _RemoteWatch(watch, self._network, self._process)

    async def grant_lease(self, ttl_seconds: int) -> int:
        return await self._write("GRANT", lambda: self._store.grant_lease(ttl_seconds))

    async def keep_alive(self, lease: int) -> int:
        return await self._write(f"KEEPALIVE {lease}", lambda: self._store.keep_alive(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._write(f"REVOKE {lease}", lambda: self._store.revoke_lease(lease))

    async def compact(self, revision: int) -> None:
        await self._network.read(self._process, "metadata", lambda: self._store.compact(revision))

    async def _write(self, what: str, do: Callable[[], Awaitable[T]]) -> T:
        return await self._network.write(self._process, "metadata", what, do, longest=LATEST_SECONDS)


class _RemoteWatch:
    def __init__(self, watch: Watch, network: Network, process: Process) -> None:
        self._watch = watch
        self._network = network
        self._process = process

    async def next(self) -> tuple[Event, ...]:
        faults = self._network.faults
        events = await self._watch.next()
        process, down = self._process, self._network.down
        while process.cut_from_metadata or "metadata" in down or trio.current_time() < process.behind_until:  # noqa: ASYNC110
            await trio.sleep(0.1)
        if faults.hits("watch-gap"):
            raise Compacted("too far behind")
        if faults.hits("watch-broken"):
            raise Unavailable("the watch is broken")
        await trio.sleep(faults.between(0.05, 1.0) if faults.hits("watch-slow") else faults.latency())
        return events
