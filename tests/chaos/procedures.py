"""The crash points of storage and indexers: procedures with their steps, and a scene in which one of them is played.

One process, the victim, ends itself at a point, and the others go on. Meanwhile two producers write with acks=all.
`PROCEDURES` has the procedures of logs that are not rewritten, and `REWRITES` those of rewritten logs.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

import confluent_kafka as ck
import httpcore
import pytest

from kafscale.metadata.members import place_of, weight
from tests.chaos.crashing import ARM, CrashPoint
from tests.servers.cluster import Cluster, ServiceProcess
from tests.support.chaos.workload import key_of
from tests.support.checker import IDEMPOTENT, REPEATED, Checker
from tests.support.clients.confluent import ConfluentClient
from tests.support.compacted import Key
from tests.support.shell import Shell
from tests.support.topic_reader import TopicReader

SURVIVOR, VICTIM = 0, 1
REACHED_SECONDS = 40.0
_RECOVERY_SECONDS = 60.0
_KEYS = 7
_IN_FLIGHT = 20
"""Records of the idempotent producer that are not acknowledged yet, at most."""
LONG_INTERVAL = {"KAFSCALE_SEGMENT_INTERVAL_MS": "10000"}
"""The first records of a partition become a segment at once. Later ones stay in the intake for this long."""
SHORT_INTERVAL = {"KAFSCALE_SEGMENT_INTERVAL_MS": "200"}
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
        self._keys = _KEYS if idempotent else 0
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
            value = f"{self._name}/{self._sent}"
            self._checker.sent(self._name, self._topic, value.encode(), self._promise)
            key = key_of(value, self._keys)
            self._producer.produce(self._topic, key=key, value=value, partition=0, on_delivery=self._delivered)
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


def key_of_value(value: bytes) -> Key:
    """Return the key of a record that a writer has sent. Only records of idempotent writers share keys."""
    text = value.decode()
    return Key(key_of(text, _KEYS if text.startswith("idempotent/") else 0).encode(), tombstone=False)


@dataclass
class Scene:
    """A cluster with a survivor and a victim, and the topic of one crash point. Its only partition is 0."""

    cluster: Cluster
    topic: str
    victim: ServiceProcess
    writers: list[Writer] = field(default_factory=list)

    @property
    def survivor(self) -> ServiceProcess:
        return self.cluster.storages[SURVIVOR]

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

    def begin_writing(self, checker: Checker) -> None:
        """Start an idempotent producer and another one, and wait for their first acks."""
        for name in ("idempotent", "plain"):
            idempotent = name == "idempotent"
            self.writers.append(Writer(name, self.cluster.bootstrap, self.topic, checker, idempotent=idempotent))
        self.write(20)

    @property
    def shell(self) -> Shell:
        return Shell(self.cluster.env, self.cluster.gateways[0].address)


def arm(process: ServiceProcess) -> None:
    os.kill(process.process.pid, ARM)


def _start_victim(scene: Scene) -> None:
    scene.victim.start()


def _go_on(scene: Scene) -> None:
    arm(scene.victim)


def _kill_owner(scene: Scene) -> None:
    arm(scene.victim)
    scene.survivor.kill()


def _end_both(scene: Scene) -> None:
    arm(scene.victim)
    arm(scene.survivor)


def _drain_victim(scene: Scene) -> None:
    arm(scene.victim)
    done = scene.shell.run(f"drain {scene.victim.address} --no-wait")
    assert done.returncode == 0, done.stderr


def _stop_victim(scene: Scene) -> None:
    arm(scene.victim)
    os.kill(scene.victim.process.pid, signal.SIGTERM)


@dataclass(frozen=True)
class Procedure:
    """A procedure of the victim, with its steps in their order.

    ``steps``: names in `STEPS`, and which request of the step is meant. ``normal`` has those of the normal run, with
    "before" or "after". ``begin`` starts the procedure. ``owner``: the instance that the partition is assigned to.
    ``env``: settings of the victim besides those of the cluster. ``blocked``: a step that the victim cannot make.
    ``former``: the step after which the survivor ends itself as well. ``service``: of the victim. ``configs``: of the
    topic.
    """

    begin: Callable[[Scene], None]
    owner: int
    steps: list[tuple[str, int]]
    normal: frozenset[tuple[str, int, str]] = frozenset()
    env: Mapping[str, str] = field(default_factory=dict)
    blocked: str = ""
    former: str = ""
    service: str = "storage"
    configs: Mapping[str, str] = field(default_factory=dict)


PROCEDURES = {
    # The victim begins while the survivor owns the partition, which is assigned to the victim from then on.
    "start": Procedure(_start_victim, VICTIM, [("register", 1), ("open the intake register", 1)]),
    # The victim owns the partition.
    "write": Procedure(
        _go_on,
        VICTIM,
        [("put an intake object", 3), ("put a segment", 2), ("commit", 2)],
        env=SHORT_INTERVAL,
    ),
    "checkpoint": Procedure(
        _go_on,
        VICTIM,
        [("put a newer checkpoint", 1), ("delete intake objects", 1)],
        frozenset({("put a newer checkpoint", 1, "after")}),
        env=SHORT_INTERVAL,
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
        _end_both, SURVIVOR, [("replace a segment", 1)], former="put a segment"
    ),
    "removal of an intake": Procedure(
        _kill_owner,
        SURVIVOR,
        [
            ("put the mark of a removed intake", 1),
            ("delete intake objects", 1),
            ("delete the intake register", 1),
        ],
        env={"KAFSCALE_RETENTION_CHECK_MS": "1000"},
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
        env={"KAFSCALE_HANDOVER_TIMEOUT_MS": "500"},
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
        env={"KAFSCALE_DRAIN_TIMEOUT_MS": "500"},
        blocked="put a segment",
    ),
}

_COMPACTED = {
    "cleanup.policy": "compact",
    # Everything but the last segment may be compacted.
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0",
}
_MERGED = {"kafscale.merge.enable": "true", "compression.type": "producer"}

REWRITES = {
    # The victim owns the partition.
    "compaction": Procedure(
        _go_on,
        VICTIM,
        [("put a root", 2), ("commit a root", 2), ("delete what a root has replaced", 1)],
        frozenset({("put a root", 2, "after")}),
        configs=_COMPACTED,
    ),
    "merge": Procedure(
        _go_on,
        VICTIM,
        [("put a root", 1), ("commit a root", 1), ("delete what a root has replaced", 1)],
        configs=_MERGED,
    ),
    # The survivor owns the partition and ends itself when it has put a root that it does not commit.
    "sweep": Procedure(
        _end_both,
        SURVIVOR,
        [("sweep uncommitted roots", 1), ("sweep uncommitted objects", 1)],
        configs=_COMPACTED,
        former="put a root",
    ),
    # The victim is the only indexer.
    "compaction by an indexer": Procedure(
        _go_on,
        SURVIVOR,
        [("put a rewritten index", 2), ("put a rewritten object", 2)],
        frozenset({("put a rewritten object", 2, "before")}),
        service="indexer",
        configs=_COMPACTED,
    ),
    "merge by an indexer": Procedure(
        _go_on,
        SURVIVOR,
        [("put a rewritten index", 1), ("put a rewritten object", 1)],
        service="indexer",
        configs=_MERGED,
    ),
}


def starts_later(procedure: Procedure) -> bool:
    """Return whether the victim is started only when the procedure begins."""
    return procedure.begin is _start_victim


def points(procedures: Mapping[str, Procedure]) -> Iterator[object]:
    """Yield name, step, number and side of each crash point, as parameters of a test."""
    for name, procedure in procedures.items():
        for step, number in procedure.steps:
            for side in ("before", "after"):
                marks = () if (step, number, side) in procedure.normal else (pytest.mark.long,)
                yield pytest.param(name, step, number, side, marks=marks, id=f"{name}-{step}-{number}-{side}")


def new_topic(cluster: Cluster, client: ConfluentClient, owner: int, configs: Mapping[str, str] | None = None) -> str:
    """Create a topic whose partition is assigned to the survivor or the victim while both are members."""
    with TopicReader(cluster.storages[SURVIVOR].address) as reader:
        while True:
            topic = f"crash-{next(_numbers)}"
            client.create_topic(topic, configs=configs)
            (ref,) = reader.partitions(topic)
            place = place_of(ref.topic_id, ref.partition)
            if max(cluster.storages, key=lambda one: weight(one.address, place)) is cluster.storages[owner]:
                return topic
            client.delete_topic(topic)


def check_crash(process: ServiceProcess, point: CrashPoint) -> None:
    """Check that the process ended itself at the point."""
    process.process.wait_for(lambda line: True if line.strip() == point.message else None, timeout=5)
    assert process.process.status == -signal.SIGKILL


def check_health(scene: Scene) -> None:
    """Check that all intakes are known and whole, and that no partition is offline."""
    states = {one["state"] for one in scene.shell.json("intake list")["intakes"]}
    assert "live" in states, states
    metrics = httpcore.request("GET", f"http://{scene.survivor.http}/metrics").content.decode()
    (offline,) = [line for line in metrics.splitlines() if line.startswith("kafscale_storage_partitions_offline")]
    assert float(offline.split()[-1]) == 0, offline
