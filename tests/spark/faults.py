"""A stream from topic to topic by the Spark package, while all its parts are killed at random.

``python -m tests.spark.faults [--seed N] [--seeds N] [--seconds S]``. A run draws its faults from its seed: each kind
once, in any order, and more until its time is over. Then the query runs to its end, and the output must hold exactly
the input. The sink reports most of the moments for kills itself, in `programs/faulty_stream.py`: tasks before, during
and after staging, and commits before and after the sink's.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.servers.cluster import Cluster, ServiceProcess, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.spark.consume import consume
from tests.spark.driver import Drivers, await_gone
from tests.spark.faults_check import Report, Witness, batch_ends, judge, line, query_id, shortened, value_of
from tests.spark.topics import Topics

INPUTS, OUTPUTS = 3, 4
BATCH_RECORDS = 600
_STEP_SECONDS = 180.0
"""The bound of every wait, many times longer than any should take."""
_MOST_FAILURES = 30
_LAST_QUERIES = 3

Say = Callable[[str], None]


class Stuck(Exception):
    """An expected event did not happen."""


def _cause(error: str) -> str:
    """Return the first and the last error of the chain: Spark's message, and the root cause."""
    message = " ".join(error.partition("terminated with exception: ")[2].partition("=== Streaming Query")[0].split())
    return textwrap.shorten(message or error, 200) + (f" [...] {message[-200:]}" if len(message) > 400 else "")


class _Input:
    """Writes the input at the pace of the copy, so that a slow machine has no more to do than a fast one."""

    def __init__(self, bootstrap: str, topic: str, dice: random.Random) -> None:
        self.sent: dict[int, list[tuple[bytes, bytes]]] = {number: [] for number in range(INPUTS)}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._topic = topic
        self._dice = dice

    def more(self) -> None:
        for _ in range(BATCH_RECORDS):
            partition = self._dice.randrange(INPUTS)
            records = self.sent[partition]
            key = f"key {self._dice.randrange(200)}".encode()
            value = value_of(partition, len(records), self._dice.randrange(20, 1500))
            records.append((key, value))
            self._producer.produce(self._topic, value, key, partition)
        self._producer.poll(0)

    def finish(self) -> None:
        if self._producer.flush(_STEP_SECONDS):
            raise Stuck("the input is not acknowledged")


class _Run:
    """The run of one seed."""

    def __init__(self, cluster: Cluster, drivers: Drivers, directory: Path, seed: int, say: Say) -> None:
        self.report = Report(seed)
        self._cluster = cluster
        self._drivers = drivers
        self._dice = random.Random(f"{seed} faults")
        self._checkpoint = directory / f"checkpoint-{seed}"
        self._began = time.monotonic()
        self._tell = say
        self._planned = 0
        self._left_behind: list[int] = []
        self._restarts: dict[str, threading.Thread] = {}
        topics = Topics(cluster.bootstrap)
        self._source, self._sink = topics.make(INPUTS), topics.make(OUTPUTS)
        self._input = _Input(cluster.bootstrap, self._source, random.Random(f"{seed} input"))
        self._witness = Witness(cluster.bootstrap, self._sink, OUTPUTS)

    def run(self, seconds: float) -> Report:
        try:
            for _ in range(2):
                self._input.more()
            self._start()
            self._storm(seconds)
            self._heal()
            self._drain()
            self._judge()
        except Stuck as error:
            self.report.complaints.append(f"stuck: {error}")
            # The next run's driver starts afresh.
            self._drivers.kill()
            self._drivers.next()
        finally:
            self._witness.end()
            for thread in self._restarts.values():
                thread.join()
        self.report.seconds = time.monotonic() - self._began
        return self.report

    def _say(self, text: str) -> None:
        self._tell(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def _storm(self, seconds: float) -> None:
        kinds: list[Callable[[], None]] = [
            self._kill_task,
            self._kill_worker,
            self._kill_commit,
            self._kill_driver_by_plan,
            lambda: self._kill_service(self._cluster.storages),
            lambda: self._kill_service(self._cluster.gateways),
        ]
        until = time.monotonic() + seconds
        for fault in self._dice.sample(kinds, len(kinds)):
            fault()
            self._go_on(self._dice.uniform(0.0, 1.0))
        kinds.append(self._kill_driver)
        while time.monotonic() < until:
            self._dice.choice(kinds)()
            self._go_on(self._dice.uniform(0.0, 2.0))

    # --- the query

    def _start(self, **trigger: Any) -> None:
        endpoints = ",".join(storage.address for storage in self._cluster.storages)
        self._drivers.current.tell(
            "start",
            source={
                "kafscale.endpoints": endpoints,
                "subscribe": self._source,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(BATCH_RECORDS),
                "minPartitions": str(self._dice.choice([INPUTS, 2 * INPUTS])),
            },
            sink={
                "kafscale.endpoints": endpoints,
                "topic": self._sink,
                "stageBytes": "64KB",
                "batchBytes": "16KB",
                "checkpointLocation": str(self._checkpoint),
            },
            trigger=trigger or {"processingTime": "0 seconds"},
        )

    def _look(self) -> list[dict[str, Any]]:
        """Read the sink's new events. Start a query that has ended again."""
        answer = self._drivers.current.answer()
        if answer is not None:
            self.report.failures += 1
            self._say(f"the query ended and is restarted: {_cause(answer['error'])}")
            if self.report.failures > _MOST_FAILURES:
                raise Stuck(f"the query fails repeatedly: {answer['error']}")
            self._start()
        events = self._drivers.current.new_events()
        for event in events:
            if event["event"] == "committed":
                self._input.more()
        return events

    def _go_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            time.sleep(0.02)

    def _await(self, event: str) -> dict[str, Any]:
        """Wait for the next event of a kind."""
        deadline = time.monotonic() + _STEP_SECONDS
        while time.monotonic() < deadline:
            for found in self._look():
                if found["event"] == event:
                    return found
            time.sleep(0.01)
        raise Stuck(f"the sink did not report: {event}")

    # --- the faults

    def _counts(self, kind: str, detail: str = "") -> None:
        self.report.faults[kind] += 1
        self._say(f"{kind} killed {detail}".rstrip())

    def _kill_task(self) -> None:
        point = self._dice.choice(["task-begins", "task-stages", "task-staged"])
        self._look()
        self._drivers.current.order(point, die=True)
        self._await("obeyed")
        self._counts("task", f"({point})")

    def _kill_worker(self) -> None:
        """Kill any Python process of the driver, at any moment of a micro-batch."""
        self._look()
        self._await("committed")
        self._go_on(self._dice.uniform(0.0, 1.0))
        workers = self._drivers.current.workers()
        if workers:
            pid = self._dice.choice(workers)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self._counts("worker")

    def _kill_commit(self) -> None:
        """Kill the process that commits, not the driver."""
        point = self._dice.choice(["commit-before", "commit-after"])
        self._look()
        self._drivers.current.order(point, die=True)
        self._await("obeyed")
        self._counts("committer", f"({point})")

    def _kill_driver_by_plan(self) -> None:
        """Kill a driver at one of two points, alternating with the seed, because starting a driver takes longest."""
        self._planned += 1
        self._kill_driver_at(("commit-before", "commit-after")[(self.report.seed + self._planned) % 2])

    def _kill_driver_at(self, point: str) -> None:
        """Half of the kills leave a commit behind, which continues when another driver runs."""
        goes_on = point == "commit-before" and self._dice.random() < 0.5
        seconds = {"seconds": self._dice.uniform(0.0, 4.0)} if goes_on else {}
        self._look()
        self._drivers.current.order(point, die=False, goes_on=goes_on, **seconds)
        held = self._await("obeyed")
        self._left_behind.append(held["pid"])
        self._kill_driver(f"driver, {'before its commit' if point == 'commit-before' else 'after its commit'}")
        if goes_on:
            self.report.faults["commit left behind"] += 1

    def _kill_driver(self, kind: str = "driver, at any moment") -> None:
        self._left_behind += self._drivers.current.workers()
        self._drivers.kill()
        self._counts(kind)
        self._drivers.next()
        self.report.drivers += 1
        self._start()

    def _kill_service(self, processes: list[ServiceProcess]) -> None:
        """Kill a service during a commit or at any moment. It is started again later."""
        if self._dice.random() < 0.6:
            self._look()
            self._await("commits")
            self._go_on(self._dice.uniform(0.0, 0.4))
        process = self._dice.choice(processes)
        away = self._dice.uniform(0.0, 4.0)
        self._await_restarts(process.service)
        process.kill()
        self._counts(process.service, f"({process.name}, for {away:.1f} s)")

        def come_back() -> None:
            time.sleep(away)
            process.restart()

        self._restarts[process.service] = thread = threading.Thread(target=come_back)
        thread.start()

    def _await_restarts(self, service: str) -> None:
        """Only one instance of a kind is down at a time."""
        thread = self._restarts.get(service)
        while thread is not None and thread.is_alive():
            self._look()
            time.sleep(0.05)

    # --- the end

    def _heal(self) -> None:
        for service in self._restarts:
            self._await_restarts(service)
        self._look()
        self._drivers.current.tell("stop")
        self._await_end()
        self._input.finish()
        for pid in self._left_behind:
            await_gone(pid)
        self._say("everything is healed")

    def _drain(self) -> None:
        """Spark fails a query whose Python process takes longer than 10 s to start."""
        for _ in range(_LAST_QUERIES):
            self._start(availableNow=True)
            error = self._await_end()
            if not error:
                self._say("the query has run to its end")
                return
            self.report.failures += 1
        self.report.complaints.append(f"the last query failed {_LAST_QUERIES} times: {error}")

    def _await_end(self) -> str:
        answer = self._drivers.current.answer(_STEP_SECONDS)
        if answer is None:
            raise Stuck("the query does not end")
        error: str = answer["error"]
        return error

    def _judge(self) -> None:
        bootstrap = self._cluster.bootstrap
        given, found = consume(bootstrap, self._source, INPUTS), consume(bootstrap, self._sink, OUTPUTS)
        self.report.seen = len(self._witness.seen)
        self._witness.finish(len(found), _STEP_SECONDS)
        sink, committing = query_id(self._checkpoint), dict[int, float]()
        for driver in self._drivers.all:
            for event in driver.all_events():
                if event["event"] == "commits" and event["sink"] == sink:
                    committing[event["epoch"]] = min(event["at"], committing.get(event["epoch"], event["at"]))
        before = self.report.complaints
        self.report.verdict = judge(
            self._input.sent, given, found, self._witness, committing, batch_ends(self._checkpoint, self._source)
        )
        crashed = [
            f"traceback: in {process.log}"
            for process in self._cluster.processes
            if "Traceback (most recent call last)" in process.log.read_text(errors="replace")
        ]
        self.report.complaints[:0] = [*before, *crashed]


class Faults:
    """A cluster and drivers for one seed after the other."""

    def __init__(self, cluster: Cluster, drivers: Drivers, directory: Path) -> None:
        self._cluster = cluster
        self._drivers = drivers
        self._directory = directory

    def run(self, seed: int, *, seconds: float, say: Say) -> Report:
        return _Run(self._cluster, self._drivers, self._directory, seed, say).run(seconds)


@contextmanager
def running_faults(directory: Path, *, etcd: Etcd | None = None, minio: Minio | None = None) -> Iterator[Faults]:
    services = directory / "spark-faults"
    services.mkdir()
    with running_cluster(services, gateways=2, storages=2, etcd=etcd, minio=minio) as cluster:
        drivers = Drivers(directory / "drivers")
        try:
            yield Faults(cluster, drivers, directory)
        finally:
            drivers.end()


def main() -> int:
    """Return 0 without complaints. Otherwise return 1 and keep all logs."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.faults")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--seeds", type=int, default=1, help="number of runs, with this seed and those after it")
    parser.add_argument("--seconds", type=float, default=0.0, help="the shortest duration of the faults of a run")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="kafscale-faults-"))
    complaints = 0
    with running_faults(directory) as faults:
        for seed in range(given.seed, given.seed + given.seeds):
            report = faults.run(seed, seconds=given.seconds, say=lambda text: print(text, flush=True))
            print(line(report), *shortened(report.complaints), sep="\n", flush=True)
            complaints += len(report.complaints)
    if complaints:
        print(f"{complaints} complaints; logs are kept in {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
