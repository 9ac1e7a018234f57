"""kill -9 of a storage instance or an indexer directly before and after each step in which logs are rewritten.

`REWRITES` is the table of the crash points. After the crash, rewriting goes on, what the victim has left is deleted,
and a compacted log has the last record of each key at its offset.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import storage
from tests.chaos.crashing import CrashPoint
from tests.chaos.leftovers import RewrittenState, rewritten_state
from tests.chaos.procedures import (
    REACHED_SECONDS,
    REWRITES,
    SHORT_INTERVAL,
    SURVIVOR,
    VICTIM,
    Procedure,
    Scene,
    check_crash,
    check_health,
    key_of_value,
    new_topic,
    points,
)
from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.support.checker import Checker
from tests.support.clients.confluent import ConfluentClient
from tests.support.compacted import Compacted

_SETTLED_SECONDS = 60.0
_LOOK_SECONDS = 0.3
_SETTINGS = {
    **SHORT_INTERVAL,
    "KAFSCALE_REWRITE_CHECK_MS": "200",
    "KAFSCALE_REWRITE_GRACE_MS": "1000",
    "KAFSCALE_MERGE_BYTES": "64KB",
}
_LONG_AGO = float("inf")


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with one indexer, whose only storage instance is the survivor. The victim is added, but not started."""
    directory: Path = tmp_path_factory.mktemp("rewrite-crash-points")
    with running_cluster(directory, storages=0, coordinators=0, env=_SETTINGS, etcd=etcd, minio=minio) as running:
        for _ in (SURVIVOR, VICTIM):
            running.add("storage").command = storage.COMMAND
        running.storages[SURVIVOR].restart()
        yield running


@pytest.mark.parametrize(("name", "step", "number", "side"), [*points(REWRITES)])
def test_rewriting_goes_on_and_nothing_acked_is_lost_after_kill_9(
    cluster: Cluster, name: str, step: str, number: int, side: str
) -> None:
    procedure = REWRITES[name]
    namespace = cluster.env["KAFSCALE_S3_NAMESPACE"]
    survivor = cluster.storages[SURVIVOR]
    victim = cluster.indexers[0] if procedure.service == "indexer" else cluster.storages[VICTIM]
    client, checker = ConfluentClient(cluster.bootstrap), Checker()
    topic = new_topic(cluster, client, procedure.owner, procedure.configs)
    if "cleanup.policy" in procedure.configs:
        checker.compacts(topic, Compacted(key_of_value, time.monotonic, stays=_LONG_AGO, reading=0.0))
    point = CrashPoint(namespace, topic, step, side == "after", number, service=procedure.service)
    former = CrashPoint(namespace, topic, procedure.former, after=True)
    scene, plain, of_survivor = Scene(cluster, topic, victim), victim.command, survivor.command
    try:
        if procedure.former:
            survivor.command = former.command
            survivor.restart()
        victim.command = point.command
        victim.restart()
        scene.begin_writing(checker)
        procedure.begin(scene)
        scene.write_while(lambda: victim.running, seconds=REACHED_SECONDS, otherwise=f"no {point.message}")
        check_crash(victim, point)
        victim.command, survivor.command = plain, of_survivor
        if procedure.former:
            check_crash(survivor, former)
        crashed = rewritten_state(cluster.env, topic)
        print(f"left by {point.message}: {sorted(crashed.left)}")
        if side == "after" and step.startswith("put a"):
            # Nothing names what was put.
            assert crashed.left
        if not survivor.running:
            survivor.start()
        if procedure.service == "indexer":
            victim.start()
        scene.write(20)
        _await_next_root(scene, procedure, crashed)
        for writer in scene.writers:
            writer.finish()
        _check_log(checker, client, topic)
        check_health(scene)
        client.delete_topic(topic)
    finally:
        victim.command, survivor.command = plain, of_survivor
        if procedure.service == "storage":
            victim.end()
        elif not victim.running:
            victim.restart()
        if not survivor.running:
            survivor.restart()


def _await_next_root(scene: Scene, procedure: Procedure, crashed: RewrittenState) -> None:
    """Write until a later root is committed, by another owner if the victim was one, and nothing is left."""
    looked, found = 0.0, crashed

    def waits() -> bool:
        nonlocal looked, found
        if time.monotonic() - looked > _LOOK_SECONDS:
            found = rewritten_state(scene.cluster.env, scene.topic)
            looked = time.monotonic()
        taken_over = procedure.service == "indexer" or found.root_epoch > crashed.epoch
        return found.root <= crashed.root or not taken_over or bool(found.left & crashed.left)

    try:
        scene.write_while(waits, seconds=_SETTLED_SECONDS, otherwise="no later root, or objects are left")
    finally:
        print(f"root {crashed.root} of epoch {crashed.root_epoch}, then root {found.root} of {found.root_epoch}")
        print(f"still left: {sorted(found.left & crashed.left)}")


def _check_log(checker: Checker, client: ConfluentClient, topic: str) -> None:
    start, end = client.offsets(topic)
    records = [(one.offset, one.value or b"") for one in client.consume_all(topic)]
    # The last segment is never compacted.
    checker.finish(topic, start=start, end=end, records=records, last_segment=end - 1)
    assert not checker.violations, "\n".join(map(str, checker.violations[:20]))
