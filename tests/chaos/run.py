"""A chaos run: start everything, inject faults for a while, heal them, and check the history.

Of the three topics, one is merged and one is compacted all the time.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka as ck
import trio
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.faults import storm
from tests.chaos.world import World, running_world
from tests.support.chaos.clients import LAST_READER, Client, producers, readers, shared_keys
from tests.support.chaos.history import Verdict, events, judge
from tests.support.chaos.progress import PROGRESS_SECONDS, NoProgress, await_acks, finish, read_at_the_end, until
from tests.support.chaos.workload import Logs, key_of
from tests.support.compacted import Key

_COMPACTED = "chaos-compacted"
TOPICS: dict[str, dict[str, str]] = {
    "chaos": {},
    "chaos-merged": {"kafscale.merge.enable": "true"},
    # Everything but the last segment may be compacted.
    _COMPACTED: {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"},
}
LOGS = Logs(list(TOPICS), 2 * len(TOPICS))
KINDS = ("merge", "compaction")
_START_SECONDS = 300.0
_STATUS_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_TRACEBACK_CHARACTERS = 3000


@dataclass(slots=True)
class Report:
    """The result of a run. ``ended`` counts unexpected exits by node and status.

    ``rewrites``: the committed rewrites by kind. ``abandoned``: how many others were begun. ``longest_stall``: for how
    long this process, with all proxies, did not run although it was due, in seconds.
    """

    seed: int
    minutes: float
    faults: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    rewrites: Counter[str] = field(default_factory=Counter)
    abandoned: int = 0
    longest_stall: float = 0.0
    verdict: Verdict = field(default_factory=lambda: Verdict([], {}, {}, 0, 0.0))

    @property
    def complaints(self) -> list[str]:
        return self.verdict.complaints


async def run(directory: Path, *, minutes: float, seed: int, say: Callable[[str], None]) -> Report:
    """Run and check. Logs and history are in ``directory``. ``say`` is called with progress messages."""
    report = Report(seed, minutes)
    began = time.monotonic()
    stuck: list[str] = []

    def report_line(text: str) -> None:
        # Include the monotonic time, which the lines of the clients have too.
        now = time.monotonic()
        say(f"{now - began:7.1f} s  {text}")
        with (directory / "faults.log").open("a") as log:
            log.write(f"{now:.6f} {text}\n")

    def begin(fault: str) -> Callable[[str], None]:
        report.faults[fault] += 1
        return report_line

    async with running_world(directory, random.Random(f"{seed} S3")) as world:
        senders = producers(world.bootstrap, directory, LOGS)
        others = readers(world.bootstrap, directory, LOGS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_supervise, world, report, report_line)
            nursery.start_soon(_measure_stalls, report)
            try:
                await trio.to_thread.run_sync(_make_topics, world.bootstrap)
                report_line(f"everything is running; seed {seed}")
                for client in (*senders, *others):
                    await nursery.start(client.run)
                nursery.start_soon(_report_sums, senders, others, report_line)
                await await_acks(senders, _START_SECONDS)
                with trio.move_on_after(60 * minutes):
                    await storm(world, seed, begin)
                world.heal()
                report_line("everything is healed")
                _count_rewrites(report, [node.log for node in world.storages])
                before = report.rewrites.copy()
                await await_acks(senders, PROGRESS_SECONDS)
                report_line("all producers make progress in all partitions")
                await until(lambda: _not_rewritten_since(before, world, report), PROGRESS_SECONDS, "no committed")
                await finish(senders, others, report_line)
            except NoProgress as error:
                stuck.append(str(error))
                report_line(str(error))
                # Acked records are checked in any case.
                for client in (*senders, *others):
                    await client.end()
            try:
                await read_at_the_end(world.bootstrap, directory, LOGS)
            except NoProgress as error:
                stuck.append(str(error))
                report_line(str(error))
            nursery.cancel_scope.cancel()
    keys = {client.name: shared_keys(promise) for client, promise in senders.items()}
    report.verdict = judge(
        events(directory),
        {client.name: promise for client, promise in senders.items()},
        last_reader=LAST_READER,
        compacted=LOGS.of(_COMPACTED),
        key_of=lambda name: Key(key_of(name.decode(), keys.get(name.decode().partition("/")[0], 0)).encode(), False),
    )
    _count_rewrites(report, [node.log for node in world.storages])
    report.complaints[:0] = [*stuck, *crashes(node.log for node in world.nodes)]
    return report


def _not_rewritten_since(before: Counter[str], world: World, report: Report) -> list[str]:
    """Return the kinds of rewrites of which no more were committed than ``before``."""
    _count_rewrites(report, [node.log for node in world.storages])
    return [kind for kind in KINDS if report.rewrites[kind] == before[kind]]


def _count_rewrites(report: Report, logs: Iterable[Path]) -> None:
    """Count what storage instances have logged of rewrites."""
    report.rewrites.clear()
    begun = 0
    for log in logs:
        for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
            if '"rewrite begins"' in line:
                begun += 1
            elif '"rewrite finished"' in line:
                report.rewrites.update(kind for kind in KINDS if f'"{kind}"' in line)
    report.abandoned = begun - sum(report.rewrites.values())


def crashes(logs: Iterable[Path]) -> list[str]:
    """Return a complaint with the first traceback of each log. No fault justifies an unexpected exception."""
    complaints = []
    for log in logs:
        text = log.read_text(errors="replace") if log.exists() else ""
        at = text.find("Traceback (most recent call last)")
        if at >= 0:
            # In JSON, the whole traceback is in one line, which begins with the event.
            first = text.rfind("\n", 0, at) + 1
            complaints.append(f"{log.stem} logged a traceback: {log}\n{text[first:][:_TRACEBACK_CHARACTERS]}")
    return complaints


def _make_topics(bootstrap: str) -> None:
    """Create the topics as soon as a gateway serves the request."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0})
    deadline = time.monotonic() + _START_SECONDS
    for name, configs in TOPICS.items():
        topic = NewTopic(name, num_partitions=LOGS.of_each_topic, config=configs)
        while (error := _error_of(admin, topic)) is not None:
            if time.monotonic() > deadline:
                raise NoProgress(f"no topic {name} within {_START_SECONDS:g} s: {error}")
            time.sleep(0.2)


def _error_of(admin: AdminClient, topic: NewTopic) -> ck.KafkaError | None:
    """Create a topic, and return the error unless it exists now."""
    try:
        admin.create_topics([topic], request_timeout=10)[topic.topic].result()
    except ck.KafkaException as error:
        reason: ck.KafkaError = error.args[0]
        return None if reason.code() == ck.KafkaError.TOPIC_ALREADY_EXISTS else reason
    return None


async def _supervise(world: World, report: Report, report_line: Callable[[str], None]) -> None:
    """Restart processes that exit unexpectedly, like a service manager."""
    while True:
        for node in world.nodes:
            if node.wanted and not node.running:
                report_line(f"{node.name} exited unexpectedly with status {node.status} and was restarted")
                report.ended[f"{node.name}, status {node.status}"] += 1
                node.start()
        await trio.sleep(1.0)


async def _measure_stalls(report: Report) -> None:
    """On a busy machine, leases expire and calls fail because of stalls, and not only because of faults."""
    while True:
        due = trio.current_time() + _LOOK_SECONDS
        await trio.sleep_until(due)
        report.longest_stall = max(report.longest_stall, trio.current_time() - due)


async def _report_sums(senders: Iterable[Client], others: Iterable[Client], report_line: Callable[[str], None]) -> None:
    previous = ""
    while True:
        await trio.sleep(_STATUS_SECONDS)
        acked = ", ".join(f"{client.name} {sum(client.acked.values())}" for client in senders)
        read = ", ".join(f"{client.name} {client.read}" for client in others)
        sums = f"    acked: {acked}; read: {read}"
        if sums != previous:
            report_line(sums)
        previous = sums
