"""A sink driver like Spark's, and instances that die or pause at a chosen step of a sink's epoch."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import MetadataStore, Operation, Put, TxnResult, Unchanged
from kafscale.objects.interface import Body, Object, ObjectStore
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState, Sink
from kafscale.v1.storage_pb2 import (
    CommitSinkReply,
    CommitSinkRequest,
    DiscardStagesRequest,
    Stage,
    StageReply,
    StageRequest,
)
from tests.support.storage.cluster import Cluster, Instance
from tests.support.storage.harness import NAMESPACE, TIMEOUT, Caller, World, batch

T = TypeVar("T")
R = TypeVar("R", StageReply, CommitSinkReply)
PATIENCE = 300.0


async def stage(caller: Caller, ref: PartitionRef, records: bytes, *, epoch: int = 0, sink: str = "s") -> StageReply:
    request = StageRequest(sink=sink, epoch=epoch, partition=ref, records=records)
    return await caller.storage.stage(request, timeout=TIMEOUT)


async def staged(caller: Caller, ref: PartitionRef, *batches: bytes, epoch: int = 0, sink: str = "s") -> Stage:
    reply = await stage(caller, ref, b"".join(batches), epoch=epoch, sink=sink)
    assert reply.status == Status.OK, reply.detail
    return reply.stage


async def commit(
    caller: Caller, *stages: Stage, epoch: int = 0, sink: str = "s", wait_ms: int = 30_000, once: bool = False
) -> CommitSinkReply:
    request = CommitSinkRequest(sink=sink, epoch=epoch, stages=stages, wait_ms=wait_ms, once=once)
    return await caller.storage.commit_sink(request, timeout=TIMEOUT)


async def discard(caller: Caller, *stages: Stage) -> None:
    await caller.storage.discard_stages(DiscardStagesRequest(keys=[one.key for one in stages]), timeout=TIMEOUT)


async def sink_record(world: World, sink: str = "s") -> Sink:
    item = await world.metadata.get(paths.sink_key(NAMESPACE, sink))
    return Sink.FromString(item.value) if item else Sink(epoch=-1)


def no_segments(call: Call) -> Fault | None:
    """A plan for the object store that fails all requests for segments, so that no log grows."""
    return Fault(error=Unavailable("no")) if call.key.endswith(".kfs") else None


async def stage_keys(world: World) -> list[str]:
    return [info.key for info in await world.objects.list_from(paths.stages_prefix(NAMESPACE))]


async def logs(cluster: Cluster, refs: Sequence[PartitionRef]) -> list[list[bytes | None]]:
    """Return all values of each partition, as soon as all partitions can be read."""
    with trio.fail_after(300):
        while True:
            try:
                return [await cluster.read_all(ref) for ref in refs]
            except AssertionError:
                # A partition is still being handed over.
                await trio.sleep(0.5)


def values_of(epoch: int, partition: int, count: int = 6) -> list[bytes]:
    return [b"%d.%d.%d" % (epoch, partition, number) for number in range(count)]


class Driver:
    """Writes epochs through any instance that answers, and retries until one does."""

    def __init__(self, cluster: Cluster, refs: Sequence[PartitionRef], *, sink: str = "s") -> None:
        self._cluster = cluster
        self._refs = refs
        self._sink = sink
        self.committed: list[int] = []

    async def write(self, epoch: int, *, wait_ms: int = 30_000) -> bool:
        """Stage and commit an epoch, with two stages per partition. Return whether all partitions show it."""
        stages = []
        for ref in self._refs:
            six = values_of(epoch, ref.partition)
            for records in (batch(*six[:2]) + batch(six[2]), batch(*six[3:5]) + batch(six[5])):
                # As left behind by a killed task.
                await self.ask(partial(stage, ref=ref, records=batch(b"never"), epoch=epoch, sink=self._sink))
                reply = await self.ask(partial(stage, ref=ref, records=records, epoch=epoch, sink=self._sink))
                assert reply.status == Status.OK, reply.detail
                stages.append(reply.stage)
        request = CommitSinkRequest(sink=self._sink, epoch=epoch, stages=stages, wait_ms=wait_ms)
        done = await self.ask(lambda caller: caller.storage.commit_sink(request, timeout=TIMEOUT))
        assert done.status == Status.OK, done.detail
        self.committed.append(epoch)
        return done.applied

    def expected(self, ref: PartitionRef) -> list[bytes]:
        return [value for epoch in self.committed for value in values_of(epoch, ref.partition)]

    async def ask(self, call: Callable[[Caller], Awaitable[R]]) -> R:
        """Call the newest instance first, and the next one if it does not answer, as Spark's retries do."""
        with trio.fail_after(PATIENCE):
            while True:
                for instance in reversed(self._cluster.instances):
                    replies: list[R] = []
                    with trio.move_on_after(60):
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(_cancel_when, instance.ended, nursery.cancel_scope)
                            with suppress(Unavailable):
                                replies.append(await call(instance.caller))
                            nursery.cancel_scope.cancel()
                    if replies and replies[0].status != Status.UNAVAILABLE:
                        return replies[0]
                    await trio.sleep(0.1)


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class Step:
    """A kind of request to a store. ``txn`` and ``call`` return whether a request is of this kind."""

    def __init__(
        self,
        name: str,
        *,
        txn: Callable[[Sequence[Operation]], bool] = lambda _: False,
        call: Callable[[str, str], bool] = lambda _kind, _key: False,
    ) -> None:
        self.name = name
        self.txn = txn
        self.call = call


def _puts(operations: Iterable[Operation], prefix: str) -> list[bytes]:
    return [one.value for one in operations if isinstance(one, Put) and one.key.startswith(prefix)]


def _sinks(operations: Iterable[Operation]) -> list[Sink]:
    return [Sink.FromString(value) for value in _puts(operations, paths.sinks_prefix(NAMESPACE))]


def _states(operations: Iterable[Operation]) -> list[PartitionState]:
    return [PartitionState.FromString(value) for value in _puts(operations, paths.partition_states_prefix(NAMESPACE))]


def steps(partitions: int) -> list[Step]:
    """Return all steps of one epoch for ``partitions`` partitions of one topic."""

    def is_stage(key: str) -> bool:
        parsed = paths.parse_stage_key(key)
        return parsed is not None and not parsed.manifest

    def is_manifest(key: str) -> bool:
        parsed = paths.parse_stage_key(key)
        return parsed is not None and parsed.manifest

    return [
        Step("stage", call=lambda kind, key: kind == "put_if_absent" and is_stage(key)),
        Step("manifest", call=lambda kind, key: kind == "put_if_absent" and is_manifest(key)),
        Step("commit", txn=lambda then: any(len(sink.remaining) == partitions for sink in _sinks(then))),
        Step("manifest-read", call=lambda kind, key: kind == "get" and is_manifest(key)),
        Step("stage-read", call=lambda kind, key: kind == "get" and is_stage(key)),
        Step("intake", call=lambda kind, key: kind == "put_if_absent" and "/~intake/" in key),
        Step("segment", call=lambda kind, key: kind == "put_if_absent" and key.endswith(".kfs")),
        Step("progress", txn=lambda then: any(state.sinks and state.high_watermark for state in _states(then))),
        Step("removal", txn=lambda then: any(0 <= len(sink.remaining) < partitions for sink in _sinks(then))),
        Step(
            "forgetting",
            txn=lambda then: any(
                state.high_watermark >= 7 and not state.sinks and state.owner for state in _states(then)
            ),
        ),
        Step("deletion", call=lambda kind, key: kind == "delete_many" and is_stage(key)),
    ]


class Stop:
    """Kills one instance, or pauses it for ``pause`` seconds, at its first request of kind ``step``.

    If ``done``, the request takes effect before that. Otherwise it takes effect after the pause, or never.
    """

    def __init__(self, step: Step, *, done: bool, pause: float = 0) -> None:
        self.instance: Instance | None = None
        self.reached = trio.Event()
        self._step = step
        self._done = done
        self._pause = pause
        self._resumed = trio.Event()

    async def around(self, matches: bool, request: Callable[[], Awaitable[T]]) -> T:
        if self.instance is None or not matches or self.reached.is_set():
            return await request()
        self.reached.set()
        if self._done:
            result = await request()
        await self._stop()
        return result if self._done else await request()

    async def _stop(self) -> None:
        assert self.instance is not None
        if not self._pause:
            self.instance.scope.cancel()
            await trio.sleep_forever()
        self.instance.pause()
        trio.lowlevel.spawn_system_task(self._resume)
        await self._resumed.wait()

    async def _resume(self) -> None:
        await trio.sleep(self._pause)
        assert self.instance is not None
        self.instance.resume()
        self._resumed.set()


class StoppingMetadata:
    def __init__(self, store: MetadataStore, stop: Stop, step: Step) -> None:
        self._store = store
        self._stop = stop
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        return await self._stop.around(self._step.txn(then), lambda: self._store.txn(compares, then, otherwise))


class StoppingObjects:
    def __init__(self, store: ObjectStore, stop: Stop, step: Step) -> None:
        self._store = store
        self._stop = stop
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put_if_absent(self, key: str, body: Body, *, send_seconds: float = 0.0) -> str:
        matches = self._step.call("put_if_absent", key)
        return await self._stop.around(matches, lambda: self._store.put_if_absent(key, body, send_seconds=send_seconds))

    async def get(self, key: str) -> Object:
        return await self._stop.around(self._step.call("get", key), lambda: self._store.get(key))

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        doomed = list(keys)
        matches = any(self._step.call("delete_many", key) for key in doomed)
        await self._stop.around(matches, lambda: self._store.delete_many(doomed, dated=dated, unused=unused))


class Flaky:
    """A store that leaves a share of the requests unanswered. ``random`` decides whether they take effect."""

    def __init__(self, store: Any, random: Callable[[], float], share: float) -> None:
        self._store = store
        self._random = random
        self.share = share

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("get", "txn", "put_if_absent", "get_range", "list_from", "delete_many", "read_prefix"):
            return found

        async def call(*arguments: Any, **keywords: Any) -> Any:
            await trio.sleep(self._random() * 0.05)
            fails = self._random() < self.share
            if fails and self._random() < 0.5:
                raise Unavailable("no answer")
            result = await found(*arguments, **keywords)
            if fails:
                raise Unavailable("the answer was lost")
            return result

        return call
