"""Injects faults of processes, stores and clients' topics, at times that the seed determines."""

from collections.abc import Callable, Sequence

import trio

from kafscale import paths
from kafscale.v1.metadata_pb2 import Member
from services.storage.reading.cache import SegmentId
from tests.sim import stored
from tests.sim.admin import Admin
from tests.sim.faults import Faults
from tests.sim.process import Process
from tests.sim.services import NAMESPACE, Cluster
from tests.sim.stores import Family
from tests.sim.view import SMALL_SKEW_SECONDS, Partition, Retention, View

_LEAVES = 3
_MOST_PARTITIONS = 3
_LEAST_SEGMENTS = 4
_CONFIGS = (
    ("flush.ms", ("20", "300", "9223372036854775807")),
    ("segment.bytes", ("1048576", "1073741824")),
    ("compression.type", ("gzip", "lz4", "producer")),
    ("max.message.bytes", ("100000", "1048588")),
)


class Nemesis:
    """Injects faults. ``stop`` makes a storage process leave gracefully. ``remake`` recreates a topic and starts its
    clients. ``use`` starts clients for a partition."""

    def __init__(
        self,
        cluster: Cluster,
        view: View,
        admin: Admin,
        nursery: trio.Nursery,
        *,
        stop: Callable[[Process], None],
        remake: Callable[[str], None],
        use: Callable[[Partition], None],
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._admin = admin
        self._nursery = nursery
        self._stop = stop
        self._remake = remake
        self._use = use
        self._coming_and_going = False
        # Objects of other clusters by key, which must not be deleted.
        self.foreign: dict[str, bytes] = {}
        self._acts: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "pause": self._pause,
            "leave": self._leave,
            "come-and-go": self._come_and_go,
            "ping-pong": self._ping_pong,
            "lease-lost": self._lose_lease,
            "clock-jump": self._jump,
            "cut-from-metadata": lambda: self._cut("cut_from_metadata"),
            "cut-from-objects": lambda: self._cut("cut_from_objects"),
            "cut-from-peers": lambda: self._cut("cut_from_peers"),
            "metadata-down": lambda: self._take_down("metadata"),
            "objects-down": lambda: self._take_down("object"),
            "bucket-empty": lambda: self._nursery.start_soon(self._for_a_while, "bucket-empty", "empty"),
            "metadata-full": lambda: self._nursery.start_soon(self._for_a_while, "metadata-full", "full"),
            "foreign-object": lambda: self._nursery.start_soon(self._put_foreign),
            "oldest-object-deleted": lambda: self._nursery.start_soon(self._delete_oldest),
            "wall-clock-jump": self._jump_wall_clock,
            "compaction": lambda: self._nursery.start_soon(self._compact),
            "gateway-crash": self._crash_gateway,
            "gateway-pause": self._pause_gateway,
            "gateway-cut-from-metadata": lambda: self._cut_gateway("cut_from_metadata"),
            "gateway-cut-from-peers": lambda: self._cut_gateway("cut_from_peers"),
            "records-deleted": self._delete_records,
            "topic-deleted": self._delete_topic,
            "partitions-added": self._add_partitions,
            "config-changed": self._change_config,
        }

    @property
    def _faults(self) -> Faults:
        return self._cluster.faults

    async def run(self) -> None:
        """Run until cancelled. Running faults start no new ones in the calm phase."""
        while True:
            await trio.sleep(self._faults.dice.expovariate(1 / self._faults.seconds_between_events))
            kind = self._faults.event()
            if kind is not None:
                self._acts[kind]()

    def at_point(self, process: Process, point: str) -> None:
        """Called when a process reaches ``point``. It may crash or freeze there."""
        if process.dead or process.frozen or not process.started:
            return
        if point.startswith("signing"):
            # One at a time, so that the others can take over.
            alone = not any(storage.frozen for storage in self._cluster.storages.values())
            if alone and self._faults.hits("pause-before-signing"):
                process.freeze()
                self._nursery.start_soon(self._stay_frozen, process, point)
            return
        crashes, pauses = ["crash-at-point"], ["pause-at-point"]
        if point.endswith(".kfs") and point.startswith("after PUT"):
            crashes.append("crash-after-put")
            pauses.append("pause-after-put")
        elif point.endswith(".kfs") and point.startswith("before PUT"):
            pauses.append("pause-before-put")
        if any(map(self._faults.hits, crashes)):
            self._cluster.trace.add(f"fault: crash {point}", by=process.name)
            process.crash()
        elif any(map(self._faults.hits, pauses)):
            self._nursery.start_soon(self._freeze, process, point)

    def _storages(self) -> Sequence[Process]:
        return [process for process in self._cluster.storages.values() if process.serving and not process.frozen]

    def _storage(self, kind: str) -> Process | None:
        """Choose a storage process for a fault, and count the fault."""
        storages = self._storages()
        if not storages:
            return None
        self._faults.counts[kind] += 1
        process = self._faults.one_of(storages)
        self._cluster.trace.add(f"fault: {kind}", by=process.name)
        return process

    def _crash(self) -> None:
        process = self._storage("crash")
        if process is not None:
            self._nursery.start_soon(self._crash_later, process)

    async def _crash_later(self, process: Process) -> None:
        # At any step of the event loop, not only when all tasks wait.
        for _ in range(self._faults.dice.randrange(40)):
            await trio.lowlevel.checkpoint()
        if not self._faults.calm:
            process.crash()

    def _pause(self) -> None:
        process = self._storage("pause")
        if process is not None:
            self._nursery.start_soon(self._freeze, process, "anywhere")

    async def _freeze(self, process: Process, point: str) -> None:
        ttl = self._cluster.storage_settings.lease_ttl_seconds
        seconds = (
            self._faults.between(0.05, 0.6)
            if self._faults.dice.random() < 0.4
            else ttl + self._faults.between(-0.3, 1.5)
        )
        self._cluster.trace.add(f"fault: pause for {seconds:.3f} s, {point}", by=process.name)
        process.freeze()
        await self._thaw_after(process, seconds)

    async def _stay_frozen(self, process: Process, point: str) -> None:
        """Freeze a process long enough for its topics to be deleted by another process and recreated."""
        seconds = self._cluster.storage_settings.lease_ttl_seconds + self._faults.between(1.5, 5.0)
        self._cluster.trace.add(f"fault: pause for {seconds:.3f} s, {point}", by=process.name)
        await self._thaw_after(process, seconds)

    async def _thaw_after(self, process: Process, seconds: float) -> None:
        try:
            await trio.sleep(seconds)
        finally:
            # Also at the end of the run, because frozen tasks cannot be cancelled.
            self._cluster.trace.add("resumes", by=process.name)
            process.thaw()

    def _leave(self) -> None:
        process = self._storage("leave")
        if process is not None:
            self._stop(process)

    def _come_and_go(self) -> None:
        """Let a process leave and return repeatedly. The others take over its partitions and hand them back."""
        if self._coming_and_going:
            return
        process = self._storage("come-and-go")
        if process is not None:
            self._coming_and_going = True
            self._nursery.start_soon(self._leave_again_and_again, process)

    async def _leave_again_and_again(self, process: Process) -> None:
        for _ in range(_LEAVES):
            if self._faults.calm:
                return
            self._stop(process)
            await process.ended.wait()
            while self._cluster.storages[process.address] is process:  # noqa: ASYNC110
                await trio.sleep(0.05)
            process = self._cluster.storages[process.address]
            await trio.sleep(self._faults.between(0.3, 1.0))
        self._coming_and_going = False

    def _ping_pong(self) -> None:
        """Move ownership from A to B and back: pause one process for longer than its lease, then the others."""
        process = self._storage("ping-pong")
        if process is not None:
            self._nursery.start_soon(self._there_and_back, process)

    async def _there_and_back(self, process: Process) -> None:
        others = [other for other in self._storages() if other is not process]
        await self._freeze(process, "ping")
        for other in others:
            await trio.sleep(self._faults.between(0.0, 0.5))
            if not self._faults.calm:
                self._nursery.start_soon(self._freeze, other, "pong")

    def _lose_lease(self) -> None:
        process = self._storage("lease-lost")
        if process is not None:
            self._nursery.start_soon(self._revoke, process)

    async def _revoke(self, process: Process) -> None:
        store = self._cluster.metadata
        for item in (await store.read_prefix(paths.members_prefix(NAMESPACE, "storage"))).items:
            if Member.FromString(item.value).address == process.address:
                # The owner trusts the lease until its next keepalive, as if the lease had just expired.
                await trio.sleep(self._faults.between(0.0, 0.2))
                if self._faults.calm:
                    return
                process.clock_ahead += self._cluster.storage_settings.lease_ttl_seconds
                await store.revoke_lease(item.lease)

    def _jump(self) -> None:
        process = self._storage("clock-jump")
        if process is not None:
            process.clock_ahead += self._faults.between(0.3, 2.0)

    def _cut(self, what: str) -> None:
        if any(getattr(process, what) for process in self._cluster.storages.values()):
            # One at a time, so that the others can take over.
            return
        process = self._storage(what.replace("_", "-"))
        if process is not None:
            self._nursery.start_soon(self._cut_for_a_while, process, what)

    async def _cut_for_a_while(self, process: Process, what: str) -> None:
        setattr(process, what, True)
        await trio.sleep(self._faults.between(0.2, 2.5))
        setattr(process, what, False)
        self._cluster.trace.add(f"over: {what}", by=process.name)

    def _take_down(self, family: Family) -> None:
        self._nursery.start_soon(self._down, family)

    async def _down(self, family: Family) -> None:
        kind = "metadata-down" if family == "metadata" else "objects-down"
        self._faults.counts[kind] += 1
        self._cluster.trace.add(f"fault: {kind}")
        down = self._cluster.network.down
        down.add(family)
        await trio.sleep(self._faults.between(0.2, 1.5))
        down.discard(family)
        self._cluster.trace.add(f"over: {kind}")

    async def _for_a_while(self, kind: str, what: str) -> None:
        network = self._cluster.network
        if getattr(network, what):
            return
        self._faults.counts[kind] += 1
        self._cluster.trace.add(f"fault: {kind}")
        setattr(network, what, True)
        await trio.sleep(self._faults.between(0.1, 1.5))
        setattr(network, what, False)
        self._cluster.trace.add(f"over: {kind}")

    async def _put_foreign(self) -> None:
        """Put a foreign object among those of a partition, or an invalid index."""
        partition = self._faults.one_of(self._view.partitions)
        prefix = paths.partition_prefix(NAMESPACE, partition.topic, partition.index)
        base = self._faults.dice.randint(0, partition.known_end + 2)
        # A deeper key may belong to a cluster whose namespace ends with this topic's name.
        deeper = f"{partition.index}/segment-{base:020d}.kfs"
        name = self._faults.one_of(["README", "segment-7.kfs", deeper, ""])
        key = prefix + name if name else paths.index_key(NAMESPACE, partition.topic, partition.index, base)
        self._faults.counts["foreign-object"] += 1
        self._cluster.trace.add(f"fault: a foreign object {key}")
        body = self._faults.dice.randbytes(100)
        if name == deeper:
            self.foreign[key] = body
        await self._cluster.objects.delete_many([key])
        await self._cluster.objects.put_if_absent(key, body)

    async def _delete_oldest(self) -> None:
        """Delete the first of several segments of a log, as a lifecycle rule of the bucket would."""
        partition = self._faults.one_of(self._view.partitions)
        objects, metadata = self._cluster.objects, self._cluster.metadata
        segments = await stored.segments_of(metadata, objects, NAMESPACE, partition.topic, partition.index)
        if partition.condemned or partition.retention != Retention() or len(segments) < _LEAST_SEGMENTS:
            return
        oldest, following = segments[:2]
        self._faults.counts["oldest-object-deleted"] += 1
        self._cluster.trace.add(f"fault: the oldest object of {partition.log} is deleted: {oldest.key}")
        self._view.loses_objects(partition, following.base_offset)
        await objects.delete_many([oldest.key])
        # Such old objects are not in caches, so drop it. An owner that has it cached would not miss it.
        for process in self._cluster.storages.values():
            if process.serving and process.service.current is not None:
                key = SegmentId(partition.topic_id, partition.index, oldest.base_offset, oldest.epoch)
                process.service.current.reader.segments.discard(key)

    def _jump_wall_clock(self) -> None:
        process = self._storage("wall-clock-jump")
        if process is not None:
            self._nursery.start_soon(self._wrong_clock, process)

    async def _wrong_clock(self, process: Process) -> None:
        process.wall_ahead = self._faults.one_of([-300.0, -SMALL_SKEW_SECONDS, SMALL_SKEW_SECONDS, 300.0])
        self._cluster.trace.add(f"the wall clock is {process.wall_ahead:g} s ahead", by=process.name)
        await trio.sleep(self._faults.between(0.3, 3.0))
        process.wall_ahead = 0.0

    async def _compact(self) -> None:
        self._faults.counts["compaction"] += 1
        store = self._cluster.metadata
        await store.compact((await store.read_prefix("nothing")).revision)

    def _crash_gateway(self) -> None:
        process = self._gateway("gateway-crash")
        if process is not None:
            process.crash()

    def _pause_gateway(self) -> None:
        process = self._gateway("gateway-pause")
        if process is not None:
            self._nursery.start_soon(self._freeze, process, "gateway")

    def _cut_gateway(self, what: str) -> None:
        process = self._gateway(f"gateway-{what.replace('_', '-')}")
        if process is not None:
            self._nursery.start_soon(self._cut_for_a_while, process, what)

    def _gateway(self, kind: str) -> Process | None:
        """Choose a gateway for a fault, and count the fault."""
        gateways = [process for process in self._cluster.gateways.values() if process.serving and not process.frozen]
        if not gateways:
            return None
        self._faults.counts[kind] += 1
        process = self._faults.one_of(gateways)
        self._cluster.trace.add(f"fault: {kind}", by=process.name)
        return process

    def _delete_records(self) -> None:
        partitions = [one for one in self._view.partitions if not one.doomed and one.known_end]
        if partitions:
            self._faults.counts["records-deleted"] += 1
            partition = self._faults.one_of(partitions)
            # Often everything, so that the log has no batches of its producers left.
            offset = self._faults.one_of([self._faults.dice.randint(1, partition.known_end), partition.known_end])
            self._nursery.start_soon(self._admin.delete_records, partition, offset)

    def _delete_topic(self) -> None:
        topics = [partitions for partitions in self._topics() if partitions[0].topic in ("other", "keyed")]
        if topics:
            self._faults.counts["topic-deleted"] += 1
            self._nursery.start_soon(self._delete_and_remake, self._faults.one_of(topics))

    def _topics(self) -> list[list[Partition]]:
        """Return the partitions of each live topic that clients use."""
        topics: dict[bytes, list[Partition]] = {}
        for partition in self._view.partitions:
            if not partition.condemned and not partition.doomed and partition.topic != "wide":
                topics.setdefault(partition.topic_id, []).append(partition)
        return list(topics.values())

    def _add_partitions(self) -> None:
        topics = [partitions for partitions in self._topics() if len(partitions) < _MOST_PARTITIONS]
        if topics:
            self._faults.counts["partitions-added"] += 1
            self._nursery.start_soon(self._grow, self._faults.one_of(topics))

    async def _grow(self, partitions: list[Partition]) -> None:
        for partition in await self._admin.add_partition(partitions):
            self._use(partition)

    def _change_config(self) -> None:
        topics = self._topics()
        if topics:
            self._faults.counts["config-changed"] += 1
            name, values = self._faults.one_of(_CONFIGS)
            topic = self._faults.one_of(topics)[0].topic
            self._nursery.start_soon(self._admin.configure, topic, name, self._faults.one_of(values))

    async def _delete_and_remake(self, partitions: list[Partition]) -> None:
        await self._admin.delete_topic(partitions)
        self._remake(partitions[0].topic)
