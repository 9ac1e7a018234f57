"""kill -9 of a storage process directly before and after each step of the procedures on which its promises rest.

The processes, etcd and MinIO are real. `PROCEDURES` is the table of the crash points: a procedure, its steps, and which
of them belong to the normal run. In each test one storage instance, the victim, ends itself at the point, and the other
one, the survivor, takes over. Meanwhile two producers write with acks=all.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import confluent_kafka as ck
import httpcore
import pytest

from kafscale.metadata.members import place_of, weight
from tests.chaos.crashing import ARM, STEPS, CrashPoint
from tests.servers.cluster import Cluster, ServiceProcess, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.support.checker import IDEMPOTENT, REPEATED, Checker
from tests.support.clients.confluent import ConfluentClient
from tests.support.shell import Shell
from tests.support.topic_reader import TopicReader

SURVIVOR, VICTIM = 0, 1
_REACHED_SECONDS = 40.0
_RECOVERY_SECONDS = 60.0
_IN_FLIGHT = 20
"""Records of the idempotent producer that are not acknowledged yet, at most."""
_LONG_INTERVAL = {"KAFSCALE_SEGMENT_INTERVAL_MS": "10000"}
"""The first records of a partition become a segment at once. Later ones stay in the intake for this long."""
_SHORT_INTERVAL = {"KAFSCALE_SEGMENT_INTERVAL_MS": "200"}
_numbers = count()


class Writer:
    """A producer that tells the checker about each record. It keeps a few in flight, or one if it is not idempotent.

    Otherwise retries would change the order: librdkafka sends others while a refused one waits for its retry.
    """

    def __init__(self, name: str, bootstrap: str, topic: str, checker: Checker, *, idempotent: bool) -> None:
        self.acked = 0
        self.failed: list[str] = []
        self._name = name
        self._topic = topic
        self._checker = checker
        self._promise = IDEMPOTENT if idempotent else REPEATED
        self._sent = 0
        self._in_flight = _IN_FLIGHT if idempotent else 1
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def write(self) -> None:
        """Send a record unless too many are in flight, and handle the acks that have arrived."""
        if self._sent - self.acked - len(self.failed) < self._in_flight:
            value = f"{self._name}/{self._sent}".encode()
            self._checker.sent(self._name, self._topic, value, self._promise)
            self._producer.produce(self._topic, value=value, partition=0, on_delivery=self._delivered)
            self._sent += 1
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all records are acknowledged."""
        assert self._producer.flush(_RECOVERY_SECONDS) == 0, f"{self._name}: records are not acknowledged"
        assert not self.failed, f"{self._name}: {self.failed[:5]}"

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.acked += 1
        self._checker.acked(self._topic, message.value() or b"", message.offset() or 0, now=time.monotonic())


@dataclass
class Scene:
    """A cluster with a survivor and a victim, and the topic of one crash point. Its only partition is 0."""

    cluster: Cluster
    topic: str
    writers: list[Writer] = field(default_factory=list)

    @property
    def survivor(self) -> ServiceProcess:
        return self.cluster.storages[SURVIVOR]

    @property
    def victim(self) -> ServiceProcess:
        return self.cluster.storages[VICTIM]

    def write_while(self, goes_on: Callable[[], bool], *, seconds: float, otherwise: str) -> None:
        """Write while ``goes_on`` returns True. Fail with the text ``otherwise`` after some seconds."""
        deadline = time.monotonic() + seconds
        while goes_on():
            for writer in self.writers:
                writer.write()
            if time.monotonic() > deadline:
                pytest.fail(f"{otherwise} within {seconds:g} s", pytrace=False)
            time.sleep(0.005)

    def write(self, records: int) -> None:
        """Write until each producer has this many more acks."""
        targets = [writer.acked + records for writer in self.writers]
        self.write_while(
            lambda: any(writer.acked < target for writer, target in zip(self.writers, targets, strict=True)),
            seconds=_RECOVERY_SECONDS,
            otherwise="the partition is not writable",
        )

    @property
    def shell(self) -> Shell:
        return Shell(self.cluster.env, self.cluster.gateways[0].address)


def _arm(process: ServiceProcess) -> None:
    os.kill(process.process.pid, ARM)


def _start_victim(scene: Scene) -> None:
    scene.victim.start()


def _go_on(scene: Scene) -> None:
    _arm(scene.victim)


def _kill_owner(scene: Scene) -> None:
    _arm(scene.victim)
    scene.survivor.kill()


def _end_owner_after_a_segment(scene: Scene) -> None:
    _arm(scene.victim)
    _arm(scene.survivor)


def _drain_victim(scene: Scene) -> None:
    _arm(scene.victim)
    done = scene.shell.run(f"drain {scene.victim.address} --no-wait")
    assert done.returncode == 0, done.stderr


def _stop_victim(scene: Scene) -> None:
    _arm(scene.victim)
    os.kill(scene.victim.process.pid, signal.SIGTERM)


@dataclass(frozen=True)
class Procedure:
    """A procedure of the victim, with its steps in their order.

    ``steps``: names in `STEPS`, and which request of the step is meant. ``normal`` has those of the normal run, with
    "before" or "after". ``begin`` starts the procedure. ``owner``: the instance that the partition is assigned to.
    ``env``: settings of the victim. ``blocked``: a step that the victim cannot make. ``former``: the survivor ends
    itself as well, after it has put a segment that it does not commit.
    """

    begin: Callable[[Scene], None]
    owner: int
    steps: list[tuple[str, int]]
    normal: frozenset[tuple[str, int, str]] = frozenset()
    env: Mapping[str, str] = field(default_factory=lambda: _LONG_INTERVAL)
    blocked: str = ""
    former: bool = False


PROCEDURES = {
    # The victim begins while the survivor owns the partition, which is assigned to the victim from then on.
    "start": Procedure(_start_victim, VICTIM, [("register", 1), ("open the intake register", 1)]),
    # The victim owns the partition.
    "write": Procedure(
        _go_on,
        VICTIM,
        [("put an intake object", 3), ("put a segment", 2), ("commit", 2)],
        env=_SHORT_INTERVAL,
    ),
    "checkpoint": Procedure(
        _go_on,
        VICTIM,
        [("put a newer checkpoint", 1), ("delete intake objects", 1)],
        frozenset({("put a newer checkpoint", 1, "after")}),
        env=_SHORT_INTERVAL,
    ),
    # The survivor owns the partition and is killed. It is started again when the victim has died.
    "take-over": Procedure(
        _kill_owner,
        SURVIVOR,
        [
            ("seal the intake register", 1),
            ("list the intake", 1),
            ("put a seal", 1),  # far above the end
            ("put a seal", 2),  # at the end
            ("list the intake", 2),
            ("list the intake", 3),
            ("read the intake", 1),
            ("become the owner with a tail", 1),
            ("list the log", 1),
            ("settle the epoch", 1),
            ("put a segment", 1),
            ("commit", 1),
        ],
        frozenset(
            {("put a seal", 2, "before"), ("become the owner with a tail", 1, "after"), ("put a segment", 1, "after")}
        ),
    ),
    "take-over of a log with an uncommitted segment": Procedure(
        _end_owner_after_a_segment, SURVIVOR, [("replace a segment", 1)], former=True
    ),
    "removal of an intake": Procedure(
        _kill_owner,
        SURVIVOR,
        [
            ("put the mark of a removed intake", 1),
            ("delete intake objects", 1),
            ("delete the intake register", 1),
        ],
        env={**_LONG_INTERVAL, "KAFSCALE_RETENTION_CHECK_MS": "1000"},
    ),
    # The victim owns the partition and is drained.
    "hand-over": Procedure(
        _drain_victim,
        VICTIM,
        [
            ("put a segment", 1),
            ("commit", 1),
            ("put a producer snapshot", 1),
            ("commit a producer snapshot", 1),
            ("release", 1),
        ],
        frozenset({("release", 1, "after")}),
    ),
    "hand-over without segments": Procedure(
        _drain_victim,
        VICTIM,
        [("release with a tail", 1)],
        env={**_LONG_INTERVAL, "KAFSCALE_HANDOVER_TIMEOUT_MS": "500"},
        blocked="put a segment",
    ),
    # The victim owns the partition and gets SIGTERM.
    "stop": Procedure(
        _stop_victim,
        VICTIM,
        [
            ("announce leaving", 1),
            ("put a segment", 1),
            ("commit", 1),
            ("put a producer snapshot", 1),
            ("commit a producer snapshot", 1),
            ("release", 1),
            ("seal the intake register", 1),
            ("revoke the lease", 1),
        ],
        frozenset({("seal the intake register", 1, "before")}),
    ),
    "stop without segments": Procedure(
        _stop_victim,
        VICTIM,
        [("release with a tail", 1), ("seal the intake register", 1), ("revoke the lease", 1)],
        env={**_LONG_INTERVAL, "KAFSCALE_DRAIN_TIMEOUT_MS": "500"},
        blocked="put a segment",
    ),
}


def _points() -> Iterator[object]:
    for name, procedure in PROCEDURES.items():
        for step, number in procedure.steps:
            for side in ("before", "after"):
                marks = () if (step, number, side) in procedure.normal else (pytest.mark.long,)
                yield pytest.param(name, step, number, side, marks=marks, id=f"{name}-{step}-{number}-{side}")


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose only storage instance is the survivor. The victim is added, but not started."""
    directory: Path = tmp_path_factory.mktemp("crash-points")
    with running_cluster(directory, coordinators=0, env=_LONG_INTERVAL, etcd=etcd, minio=minio) as running:
        running.add("storage")
        yield running


def test_the_normal_run_names_points_of_the_table() -> None:
    for procedure in PROCEDURES.values():
        assert {name for name, _ in procedure.steps} <= STEPS.keys()
        assert {(name, number) for name, number, _ in procedure.normal} <= set(procedure.steps)
    points = [point for procedure in PROCEDURES.values() for point in procedure.steps]
    assert {name for name, _ in points} == STEPS.keys()


@pytest.mark.parametrize(("name", "step", "number", "side"), [*_points()])
def test_nothing_acked_is_lost_doubled_or_reordered_by_kill_9(
    cluster: Cluster, name: str, step: str, number: int, side: str
) -> None:
    procedure = PROCEDURES[name]
    survivor, victim = cluster.storages
    namespace = cluster.env["KAFSCALE_S3_NAMESPACE"]
    client = ConfluentClient(cluster.bootstrap)
    topic = _new_topic(cluster, client, procedure.owner)
    starts_later = procedure.begin is _start_victim
    point = CrashPoint(
        namespace, topic, step, side == "after", number, at_signal=not starts_later, blocked=procedure.blocked
    )
    former = CrashPoint(namespace, topic, "put a segment", after=True)
    plain, env = survivor.command, victim.env
    checker, scene = Checker(), Scene(cluster, topic)
    try:
        if procedure.former:
            survivor.kill()
            survivor.command = former.command
            survivor.start()
        victim.command, victim.env = point.command, {**env, **procedure.env}
        if not starts_later:
            victim.start()
            victim.await_ready()
        if procedure.former:
            survivor.await_ready()
        scene.writers += [
            Writer("idempotent", cluster.bootstrap, topic, checker, idempotent=True),
            Writer("plain", cluster.bootstrap, topic, checker, idempotent=False),
        ]
        scene.write(20)
        procedure.begin(scene)
        scene.write_while(lambda: victim.running, seconds=_REACHED_SECONDS, otherwise=f"no {point.message}")
        _check_crash(victim, point)
        if procedure.former:
            _check_crash(survivor, former)
            survivor.command = plain
        if not survivor.running:
            survivor.start()
        scene.write(20)
        for writer in scene.writers:
            writer.finish()
        start, end = client.offsets(topic)
        records = [(one.offset, one.value or b"") for one in client.consume(topic, count=end - start)]
        checker.finish(topic, start=start, end=end, records=records)
        assert not checker.violations, "\n".join(map(str, checker.violations[:20]))
        _check_health(scene)
        client.delete_topic(topic)
    finally:
        victim.end()
        victim.env, survivor.command = env, plain
        if not survivor.running:
            survivor.restart()


def _new_topic(cluster: Cluster, client: ConfluentClient, owner: int) -> str:
    """Create a topic whose partition is assigned to the survivor or the victim while both are members."""
    with TopicReader(cluster.storages[SURVIVOR].address) as reader:
        while True:
            topic = f"crash-{next(_numbers)}"
            client.create_topic(topic)
            (ref,) = reader.partitions(topic)
            place = place_of(ref.topic_id, ref.partition)
            if max(cluster.storages, key=lambda one: weight(one.address, place)) is cluster.storages[owner]:
                return topic
            client.delete_topic(topic)


def _check_crash(process: ServiceProcess, point: CrashPoint) -> None:
    """Check that the process ended itself at the point."""
    process.process.wait_for(lambda line: True if line.strip() == point.message else None, timeout=5)
    assert process.process.status == -signal.SIGKILL


def _check_health(scene: Scene) -> None:
    """Check that all intakes are known and whole, and that no partition is offline."""
    states = {one["state"] for one in scene.shell.json("intake list")["intakes"]}
    assert "live" in states, states
    metrics = httpcore.request("GET", f"http://{scene.survivor.http}/metrics").content.decode()
    (offline,) = [line for line in metrics.splitlines() if line.startswith("kafscale_storage_partitions_offline")]
    assert float(offline.split()[-1]) == 0, offline
