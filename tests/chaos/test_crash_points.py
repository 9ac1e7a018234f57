"""kill -9 of a storage process directly before and after each step of the procedures on which its promises rest.

The processes, etcd and MinIO are real. `PROCEDURES` is the table of the crash points: a procedure, its steps, and which
of them belong to the normal run. In each test one storage instance, the victim, ends itself at the point, and the other
one, the survivor, takes over. Meanwhile two producers write with acks=all.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.crashing import STEPS, CrashPoint
from tests.chaos.procedures import (
    LONG_INTERVAL,
    PROCEDURES,
    REACHED_SECONDS,
    REWRITES,
    Scene,
    check_crash,
    check_health,
    new_topic,
    points,
    starts_later,
)
from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.support.checker import Checker
from tests.support.clients.confluent import ConfluentClient


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose only storage instance is the survivor. The victim is added, but not started."""
    directory: Path = tmp_path_factory.mktemp("crash-points")
    with running_cluster(directory, coordinators=0, env=LONG_INTERVAL, etcd=etcd, minio=minio) as running:
        running.add("storage")
        yield running


def test_the_normal_run_names_points_of_the_table() -> None:
    procedures = [*PROCEDURES.values(), *REWRITES.values()]
    for procedure in procedures:
        assert {(name, number) for name, number, _ in procedure.normal} <= set(procedure.steps)
    assert {name for procedure in procedures for name, _ in procedure.steps} == STEPS.keys()


@pytest.mark.parametrize(("name", "step", "number", "side"), [*points(PROCEDURES)])
def test_nothing_acked_is_lost_doubled_or_reordered_by_kill_9(
    cluster: Cluster, name: str, step: str, number: int, side: str
) -> None:
    procedure = PROCEDURES[name]
    survivor, victim = cluster.storages
    namespace = cluster.env["KAFSCALE_S3_NAMESPACE"]
    client = ConfluentClient(cluster.bootstrap)
    topic = new_topic(cluster, client, procedure.owner)
    later = starts_later(procedure)
    point = CrashPoint(namespace, topic, step, side == "after", number, at_signal=not later, blocked=procedure.blocked)
    former = CrashPoint(namespace, topic, procedure.former, after=True)
    plain, env = survivor.command, victim.env
    checker, scene = Checker(), Scene(cluster, topic, victim)
    try:
        if procedure.former:
            survivor.kill()
            survivor.command = former.command
            survivor.start()
        victim.command, victim.env = point.command, {**env, **procedure.env}
        if not later:
            victim.start()
            victim.await_ready()
        if procedure.former:
            survivor.await_ready()
        scene.begin_writing(checker)
        procedure.begin(scene)
        scene.write_while(lambda: victim.running, seconds=REACHED_SECONDS, otherwise=f"no {point.message}")
        check_crash(victim, point)
        if procedure.former:
            check_crash(survivor, former)
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
        check_health(scene)
        client.delete_topic(topic)
    finally:
        victim.end()
        victim.env, survivor.command = env, plain
        if not survivor.running:
            survivor.restart()
