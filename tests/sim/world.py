"""A simulation: a small cluster of real services with clients, first with faults, then calm, then checked."""

import random
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put, Unchanged
from kafscale.metadata.topic_values import ClusterInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.memory import MemoryObjectStore
from services.gateway.settings import GatewaySettings
from services.storage.owning.cluster_mark import mark_prefix
from tests.sim import stored
from tests.sim.admin import Admin
from tests.sim.consumers import Consumer, read_to_end
from tests.sim.faults import (
    EVENTS,
    GATEWAYS_AND_METADATA,
    NOT_WITH_REWRITES,
    OPERATIONS,
    REWRITE_OPERATIONS,
    Faults,
)
from tests.sim.groups import Groups
from tests.sim.lookups import Lookups
from tests.sim.nemesis import Nemesis
from tests.sim.plain_producers import PlainProducer, WideProducer
from tests.sim.process import Process
from tests.sim.producers import KINDS, ONCE, IdempotentProducer, producer
from tests.sim.result import Result
from tests.sim.scans import Scanner
from tests.sim.services import (
    NAMESPACE,
    Cluster,
    GatewayProcess,
    in_memory_connections,
    serve_gateway,
    serve_storage,
    small_logs,
)
from tests.sim.settings import storage_settings, tombstones_stay, with_rewrites
from tests.sim.sinks import SinkWriter
from tests.sim.stores import LATEST_SECONDS, Metadata, Network
from tests.sim.trace import Trace
from tests.sim.transport import StorageProcess
from tests.sim.view import SMALL_SKEW_SECONDS, Compaction, Partition, Retention, View
from tests.support import scheduling
from tests.support.checker import Checker, Violation

TROUBLED_SECONDS = 4.5
GROUPS_TROUBLED_SECONDS = 12.0
"""With groups only."""
REWRITES_TROUBLED_SECONDS = 9.0
"""With rewritten logs, which must first grow."""
_REWRITES_PAUSE = 2.0
"""With rewritten logs, the time between faults of whole processes is longer by this factor."""
GROUPS_EVERY = 4
"""Every fourth seed includes consumer groups, which double its run time."""
_QUIET_SECONDS = 30.0
_READING_SECONDS = 20.0
_SETTLE_SECONDS = 1.0
_DOWN_SECONDS = 1.5
_GRACE_SECONDS = 4.0
_FLUSHED_SECONDS = 1.0
_WIDE_PARTITIONS = 280
_RAISED = 0.15
"""The share of clusters with intakes, or with rewritten logs, that begin without, as those of former releases."""


def simulate(
    seed: int,
    boost: Mapping[str, float] | None = None,
    *,
    troubled_seconds: float = TROUBLED_SECONDS,
    groups: bool | None = None,
    logs: bool = True,
    intake: bool = False,
    rewrites: bool = False,
    one_process: bool = False,
    keep_trace: bool = False,
    until_violation: bool = False,
) -> Result:
    """Run a seed. ``boost`` multiplies the probabilities of faults. ``until_violation``: only to the first violation.

    ``groups``: whether to include consumer groups. ``logs``: whether to include storage and clients of logs.
    ``intake``: whether storage instances have intakes; with some seeds, only those that start after an upgrade.
    ``rewrites``: whether they also merge and compact logs, likewise. ``one_process``: whether half of the gateways
    append as if they were in the same process as storage.
    """
    result = Result(seed)
    trace = Trace()
    grouped = seed % GROUPS_EVERY == 0 if groups is None else groups
    world = _World(
        seed,
        dict(boost or {}),
        trace,
        troubled_seconds,
        groups=grouped,
        logs=logs,
        intake=intake,
        rewrites=rewrites,
        one_process=one_process,
    )
    with in_memory_connections(), small_logs(), trace.capturing_logs():
        result.seconds = scheduling.run(seed, world.run, world.end_if_violated if until_violation else lambda: None)
    result.violations = world.checker.violations
    result.faults = world.faults.counts
    if world.groups is not None:
        result.faults += world.groups.faults.counts
        result.group_commits = world.groups.checker.commits
        result.violations += world.groups.violations
        result.group_assignments = world.groups.checker.assignments
    result.records_acked, result.records_read = world.checker.records_acked, world.checker.records_read
    result.digest = trace.digest()
    if result.violations or keep_trace:
        result.trace = trace.lines()
    return result


class _World:
    def __init__(
        self,
        seed: int,
        boost: dict[str, float],
        trace: Trace,
        troubled_seconds: float,
        *,
        groups: bool,
        logs: bool,
        intake: bool,
        rewrites: bool,
        one_process: bool,
    ) -> None:
        self._seed = seed
        self._one_process = one_process
        self._intake = intake
        self._rewrites = rewrites
        self.checker = Checker(recovering=intake or rewrites)
        self.trace = trace
        self._troubled_seconds = troubled_seconds
        self._logs = logs
        events = EVENTS if logs else {kind: EVENTS[kind] for kind in GATEWAYS_AND_METADATA}
        operations = OPERATIONS
        if rewrites:
            events = {kind: events[kind] for kind in events if kind not in NOT_WITH_REWRITES}
            operations = OPERATIONS | REWRITE_OPERATIONS
        self.faults = Faults(seed, boost, operations=operations, events=events)
        self.faults.seconds_between_events *= _REWRITES_PAUSE if rewrites else 1
        self.groups = Groups(seed, boost, trace, self._defect, alone=not logs) if groups else None
        self._producers: list[IdempotentProducer | PlainProducer | WideProducer | SinkWriter] = []
        self._lookups: list[Lookups] = []
        self._stops: dict[Process, trio.Event] = {}
        # How the topics of these names are compacted.
        self._compactions: dict[str, Compaction] = {}
        self._number = 0
        # The process of jobs that call storage, which never fails.
        self._job = Process("job", "", self._defect)

    async def run(self) -> float:
        async with trio.open_nursery() as nursery:
            await self._begin(nursery)
            await self._make_topics()
            if self.groups is not None:
                self.groups.start_clients()
            with trio.move_on_after(self._troubled_seconds):
                await self._nemesis.run()
            await self._calm_down()
            if self._logs:
                await self._check()
            nursery.cancel_scope.cancel()
        return trio.current_time()

    def end_if_violated(self) -> None:
        if self.checker.violations or (self.groups is not None and self.groups.violations):
            self._nursery.cancel_scope.cancel()

    async def _begin(self, nursery: trio.Nursery) -> None:
        dice = self.faults.dice
        # Separate, so that a seed has the same course without intakes as before there were any.
        intake_dice = random.Random(f"intake {self._seed}")
        self._nursery = nursery
        network = Network(nursery, self.faults, self.trace, self._at_point)
        metadata = Metadata(NAMESPACE)
        await self._write_cluster(metadata)
        settings = storage_settings(dice, intake_dice)
        if self._rewrites:
            settings = with_rewrites(settings, random.Random(f"rewrites {self._seed}"))
            compaction_dice = random.Random(f"compaction {self._seed}")
            keys, deletes = compaction_dice.choice([0, 3, 6, 6]), compaction_dice.random() < 0.3
            self._compactions["keyed"] = Compaction(keys, deletes)
        self.cluster = Cluster(
            faults=self.faults,
            trace=self.trace,
            network=network,
            objects=MemoryObjectStore(settle_seconds=_SETTLE_SECONDS),
            metadata=metadata,
            storage_settings=settings,
            gateway_settings=GatewaySettings(
                storage_timeout_ms=600,
                commit_silence_ms=500,
                append_message_bytes=dice.choice([2000, 1 << 20]),
            ),
            defect=self._defect,
        )
        self.view = View(
            checker=self.checker,
            faults=self.faults,
            trace=self.trace,
            gateways=self.cluster.gateways,
            now_ms=self.cluster.now_ms,
            producer_expiry=self.cluster.storage_settings.producer_expiry_ms / 1000,
            tombstones_stay=tombstones_stay(settings) - SMALL_SKEW_SECONDS,
        )
        metadata.named = self.view.named
        self._admin = Admin(self.view, self.cluster.metadata)
        if self.groups is not None:
            self.groups.begin(self.cluster, self.view, nursery)
        self._nemesis = Nemesis(
            self.cluster, self.view, self._admin, nursery, stop=self._stop, remake=self._remake, use=self._use
        )
        for number in range(dice.choice([2, 3]) if self._logs else 0):
            nursery.start_soon(self._keep_storage, f"storage-{number}")
        for number in range(2):
            nursery.start_soon(self._keep_gateway, f"gateway-{number}")

    async def _write_cluster(self, metadata: Metadata) -> None:
        """Write the cluster's value. With some seeds, its state format is raised later."""
        dice = random.Random(f"raise {self._seed}")
        raised = dice.random() < _RAISED
        if self._rewrites:
            first, newest = (dice.choice([1, 2]) if raised else 3), 3
        elif self._intake:
            first, newest = (1 if raised else 2), 2
        else:
            first = newest = 1
        cluster = ClusterInfo("A" * 22, 0, state_format=first)
        await metadata.txn((), [Put(paths.cluster_key(NAMESPACE), cluster.value())])
        if first < newest:
            after = dice.uniform(0, self._troubled_seconds)
            self._nursery.start_soon(self._raise_state_format, metadata, after, newest)

    async def _raise_state_format(self, metadata: Metadata, after: float, newest: int) -> None:
        """Finalize an upgrade: storage runs that start from now on write states of the format ``newest``."""
        await trio.sleep(after)
        self.trace.add(f"admin: the state format is raised to {newest}")
        key = paths.cluster_key(NAMESPACE)
        while True:
            item = await metadata.get(key)
            assert item is not None
            cluster = replace(ClusterInfo.read(item), state_format=newest)
            if (await metadata.txn([Unchanged(key, item.mod_revision)], [Put(key, cluster.value())])).succeeded:
                return

    def _at_point(self, process: Process, point: str) -> None:
        self._nemesis.at_point(process, point)

    async def _make_topics(self) -> None:
        cluster = await TopicCatalog(self.cluster.metadata, NAMESPACE).cluster()
        await mark_prefix(self.cluster.objects, self.cluster.metadata, NAMESPACE, cluster.cluster_id)
        retention = self.faults.one_of([Retention(), Retention(), Retention(ms=4000), Retention(bytes=4000)])
        for name, partitions, kept in (("stable", 2, Retention()), ("other", 1, retention)):
            made = await self._admin.create_topic(name, partitions, kept)
            if not self._logs:
                continue
            for partition in made:
                self._use(partition)
            if name == "stable":
                self._sink_into(made)
        if not self._logs:
            return
        for name, compaction in self._compactions.items():
            for partition in await self._admin.create_topic(name, 1, compaction=compaction):
                self._use(partition)
        self._number += 1
        self._nursery.start_soon(Consumer(self.view, list(self.view.partitions), f"c{self._number}").run)
        self._produce_wide([one for one in self.view.partitions if one.compaction is None], requests=10)
        if self.groups is None and self.faults.hits("wide-topic"):
            self._produce_wide(await self._admin.create_topic("wide", _WIDE_PARTITIONS), requests=3)

    def _produce_wide(self, partitions: Sequence[Partition], requests: int) -> None:
        self._number += 1
        made = WideProducer(self.view, partitions, f"w{self._number}", requests)
        self._producers.append(made)
        self._nursery.start_soon(made.run)

    def _remake(self, name: str) -> None:
        async def make() -> None:
            for partition in await self._admin.create_topic(name, 1, compaction=self._compactions.get(name)):
                self._use(partition)

        self._nursery.start_soon(make)

    def _use(self, partition: Partition) -> None:
        """Start clients for a partition."""
        for _ in range(self.faults.one_of([1, 2, 2])):
            self._number += 1
            kinds = KINDS if partition.compaction is None else ONCE
            made = producer(self.view, partition, f"p{self._number}", self.faults.one_of(kinds))
            self._producers.append(made)
            self._nursery.start_soon(made.run)
        for _ in range(self.faults.one_of([1, 1, 2])):
            self._number += 1
            by_name = self.faults.dice.random() < 0.3
            self._nursery.start_soon(Consumer(self.view, [partition], f"c{self._number}", by_name=by_name).run)
        self._nursery.start_soon(Scanner(self.view, self.cluster, self._job, partition, f"j{self._number}").run)
        lookups = Lookups(self.view, partition, f"l{self._number}")
        self._lookups.append(lookups)
        self._nursery.start_soon(lookups.run)

    def _sink_into(self, partitions: Sequence[Partition]) -> None:
        """Start drivers of sinks for partitions of a topic that is not deleted."""
        for number in range(self.faults.one_of([1, 2])):
            sink = SinkWriter(self.view, self.cluster, self._job, partitions, f"s{number}")
            self._producers.append(sink)
            self._nursery.start_soon(sink.run)

    async def _keep_storage(self, name: str) -> None:
        """Run a storage process, and restart it whenever it ends."""
        address, starts = f"{name}:9095", 0
        while True:
            starts += 1
            process = StorageProcess(f"{name}.{starts}", address, self._defect)
            stop = self._stops[process] = trio.Event()
            self.cluster.storages[address] = process
            self._nursery.start_soon(process.run, partial(serve_storage, self.cluster, process, stop))
            await process.ended.wait()
            self.trace.add("ended", by=process.name)
            del self._stops[process]
            await trio.sleep(0.2 if self.faults.calm else self.faults.between(0.05, _DOWN_SECONDS))

    async def _keep_gateway(self, name: str) -> None:
        address, starts = f"{name}:9092", 0
        while True:
            starts += 1
            process = GatewayProcess(f"{name}.{starts}", address, self._defect)
            process.appends_at_once = self._one_process and (starts + ord(name[-1])) % 2 == 0
            stop = trio.Event()
            self.cluster.gateways[address] = process
            self._nursery.start_soon(process.run, partial(serve_gateway, self.cluster, process, stop))
            await process.ended.wait()
            self.trace.add("ended", by=process.name)
            await trio.sleep(0.2 if self.faults.calm else self.faults.between(0.05, _DOWN_SECONDS))

    def _stop(self, process: Process) -> None:
        async def kill() -> None:
            with trio.move_on_after(_GRACE_SECONDS):
                await process.ended.wait()
            process.crash()

        if process in self._stops:
            self._stops[process].set()
            self._nursery.start_soon(kill)

    def _defect(self, name: str, error: BaseException) -> None:
        detail = "".join(traceback.format_exception(error))
        self.trace.add(f"defect: {detail}", by=name)
        self.checker.violations.append(Violation("defect", name, detail))

    async def _calm_down(self) -> None:
        """Stop faults. Producers continue for a while, then everything must be settled."""
        self.trace.add("calm phase starts")
        self.faults.calm = True
        self.cluster.network.down.clear()
        self.cluster.network.empty = self.cluster.network.full = False
        for process in (*self.cluster.storages.values(), *self.cluster.gateways.values()):
            process.cut_from_metadata = process.cut_from_objects = process.cut_from_peers = False
            process.behind_until = 0.0
            process.wall_ahead = 0.0
            process.thaw()
        if self.groups is not None:
            self.groups.calm_down()
        with trio.move_on_after(_QUIET_SECONDS):
            while not self._all_serve():  # noqa: ASYNC110
                await trio.sleep(0.1)
        await trio.sleep(LATEST_SECONDS + 1)
        while self.cluster.network.strays:  # noqa: ASYNC110
            await trio.sleep(0.1)
        for partition in self.view.partitions:
            if partition.objects_lost and not partition.doomed:
                # A read shows the owner what is missing.
                await read_to_end(self.view, partition, seconds=_READING_SECONDS)
        self.view.producing = False
        self.view.at_ease = True
        with trio.move_on_after(_QUIET_SECONDS):
            while waiting := self._unfinished():  # noqa: ASYNC110
                await trio.sleep(0.1)
        for who in waiting:
            self._stuck(who)
        # Wait until records acked from the buffer are stored.
        await trio.sleep(_FLUSHED_SECONDS + self.cluster.storage_settings.segment_interval_ms / 1000)
        if self.groups is not None:
            await self.groups.check()
        self.view.expire_all()

    def _all_serve(self) -> bool:
        """Return whether all processes serve and none is leaving."""
        leaving = any(stop.is_set() for stop in self._stops.values())
        return not leaving and all(
            process.serving for process in (*self.cluster.storages.values(), *self.cluster.gateways.values())
        )

    def _unfinished(self) -> list[str]:
        producers = [one.name for one in self._producers if not one.done]
        return producers + self._admin.under_way + [what for lookups in self._lookups for what in lookups.unanswered]

    def _stuck(self, who: str) -> None:
        self.checker.violations.append(Violation("stuck", who, "not done although there are no faults"))

    async def _check_scans(self, partition: Partition) -> None:
        scanner = Scanner(self.view, self.cluster, self._job, partition, "the last job")
        for address in sorted(self.cluster.storages):
            try:
                await scanner.verify(address)
            except Unavailable as error:
                self.checker.violations.append(Violation("unreadable", partition.log, f"{address}: {error}"))

    async def _check_administration(self, partition: Partition, end: int) -> None:
        """Check administration, at the very end because it deletes the whole log."""
        configure = partial(self._admin.configure, partition.topic, "max.message.bytes", "100000")
        await self._in_time(f"{partition.log} is configured", configure)
        if partition.compaction is not None and not partition.compaction.deletes:
            return
        await self._in_time(f"{partition.log} is emptied", partial(self._admin.delete_records, partition, end))
        whole = await read_to_end(self.view, partition, seconds=_READING_SECONDS)
        if whole != (end, end, []):
            self.view.complain(
                "not-deleted", partition, f"all records below {end} were deleted, but the log has {whole}"
            )

    def _check_online(self) -> None:
        """Check that partitions that went offline after wrong reads accept records again."""
        for process in self.cluster.storages.values():
            run = process.service.current if process.serving else None
            for partition in run.owned if run is not None else ():
                if partition.offline:
                    self.checker.violations.append(Violation("alarm", partition.name, f"offline: {partition.offline}"))

    async def _check_leftovers(self) -> None:
        """Delete everything and skip much time. Only foreign objects may remain."""
        topics: dict[bytes, list[Partition]] = {}
        for partition in self.view.partitions:
            if not partition.doomed and partition.topic != "wide":
                topics.setdefault(partition.topic_id, []).append(partition)
        for partitions in topics.values():
            self._nursery.start_soon(self._admin.delete_topic, partitions)
        for partitions in topics.values():
            name = partitions[0].topic
            await self._in_time(f"topic {name} is deleted", partial(self._admin.is_free, name))
            for key in await stored.left(self.cluster.objects, NAMESPACE, name, len(partitions)):
                self.checker.violations.append(Violation("stored", key, "its topic was deleted"))
        self.cluster.passed_over += 1.1 * self.cluster.storage_settings.stage_expiry_ms / 1000
        await self._in_time("all stages of sinks are deleted", self._nothing_is_staged)
        for key in await stored.lost(self.cluster.objects, self._nemesis.foreign):
            self.checker.violations.append(Violation("stored", key, "this object of another cluster was deleted"))

    async def _nothing_is_staged(self) -> bool:
        return not await stored.staged(self.cluster.objects, NAMESPACE)

    async def _in_time(self, what: str, do: Callable[[], Awaitable[bool]]) -> None:
        with trio.move_on_after(_QUIET_SECONDS):
            while not await do():  # noqa: ASYNC110
                await trio.sleep(0.1)
            return
        self._stuck(what)

    async def _nothing_is_replaced(self, partition: Partition) -> bool:
        return await stored.nothing_is_replaced(
            self.cluster.metadata, self.cluster.objects, NAMESPACE, partition.topic, partition.index
        )

    async def _check(self) -> None:
        for partition in self.view.partitions:
            if partition.doomed:
                self.checker.gone(partition.log)
                continue
            if partition.topic != "wide":
                await self._check_scans(partition)
            # Last, because retention continues.
            whole = await read_to_end(self.view, partition, seconds=_READING_SECONDS)
            if whole is None:
                self.checker.violations.append(Violation("unreadable", partition.log, "not read completely in time"))
                continue
            start, end, records = whole
            self.trace.add(f"{partition.log} from {start} to {end}")
            last_segment = 0
            if self._rewrites:
                last_segment = await stored.last_segment(
                    self.cluster.metadata, NAMESPACE, partition.topic, partition.index
                )
            self.checker.finish(partition.log, start=start, end=end, records=records, last_segment=last_segment)
            if self._rewrites:
                await self._in_time(
                    f"the deletion of what was replaced in {partition.log}",
                    partial(self._nothing_is_replaced, partition),
                )
            for fault in await stored.faults_of(
                self.cluster.metadata, self.cluster.objects, NAMESPACE, partition.topic, partition.index
            ):
                self.checker.violations.append(Violation("stored", partition.log, fault))
            if partition.topic != "wide":
                await self._check_administration(partition, end)
        self._check_online()
        await self._check_leftovers()
        for alarm in self.trace.alarms:
            self.checker.violations.append(Violation("alarm", "log", alarm))
