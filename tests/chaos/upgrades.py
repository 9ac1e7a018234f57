"""Upgrades and rollbacks of a cluster under load, service by service, then a check of all acked records.

Usage: ``python -m tests.chaos.upgrades --baseline CHECKOUT [--rounds 10] [--seed N] [--keep]``. CHECKOUT has the
code of the former release, which knows only state format 1. It creates the cluster. Each round replaces every process
in the order of docs/guides/upgrade.md by one of this checkout, and then in the reverse order by one of the former
release. Some processes are stopped with SIGKILL instead of SIGTERM. At the end the cluster is upgraded once more and
the upgrade is finalized. Then a storage instance of the former release starts, which must refuse the partitions.

Producers, readers and groups run all the time. Only while that last instance runs, partitions may be unavailable.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from kafscale.metadata.topic_values import NEWEST_STATE_FORMAT
from tests.chaos.report import shortened, verdict_lines
from tests.chaos.run import crashes
from tests.chaos.world import COMMON_SETTINGS
from tests.servers.cluster import Cluster, ServiceProcess, code_of, running_cluster
from tests.support.chaos.clients import (
    COMMITTED_BY_CLIENT,
    LAST_READER,
    PARTITIONS,
    TOPIC,
    Client,
    groups,
    producers,
    readers,
)
from tests.support.chaos.history import RECONNECTING, RECONNECTS, Verdict, events, judge
from tests.support.chaos.progress import (
    PROGRESS_SECONDS,
    NoProgress,
    await_acks,
    await_shares,
    finish,
    read_at_the_end,
)
from tests.support.checker import Promise
from tests.support.clients.confluent import ConfluentClient
from tests.support.shell import Shell, once

_THIS = Path(__file__).parents[2]
_KILLED = 0.25
"""The share of processes that are stopped with SIGKILL."""
_REFUSING_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_REFUSAL = "partition not taken over"
_REFUSAL_REASON = f"its state has format {NEWEST_STATE_FORMAT}"


@dataclass(slots=True)
class Outcome:
    """The result of a run. ``stopped`` and ``killed`` count the replaced processes."""

    seed: int
    rounds: int = 0
    stopped: int = 0
    killed: int = 0
    longest_wait: float = 0.0
    """The longest time that a producer waited for an ack from a partition, except during the refusal, in seconds."""
    longest_step: str = ""
    verdict: Verdict = field(default_factory=lambda: Verdict([], {}, {}, 0, 0.0))


class _Waits:
    """The times that producers wait for the next ack from a partition."""

    def __init__(self, senders: Collection[Client]) -> None:
        self._senders = senders
        self._acked: dict[tuple[str, int], int] = {}
        self._since: dict[tuple[str, int], float] = {}
        self._longest = 0.0

    async def watch(self) -> None:
        while True:
            now = trio.current_time()
            for client in self._senders:
                for partition, acked in client.acked.items():
                    place = client.name, partition
                    if self._acked.get(place) != acked:
                        self._acked[place], self._since[place] = acked, now
                    self._longest = max(self._longest, now - self._since[place])
            await trio.sleep(_LOOK_SECONDS)

    def take(self) -> float:
        """Return the longest wait since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest


@dataclass(frozen=True, slots=True)
class _Release:
    name: str
    code: Mapping[str, str]


class _Upgrades:
    """The steps of a run, each of which ends when all producers make progress in all partitions."""

    def __init__(
        self,
        cluster: Cluster,
        former: _Release,
        senders: Collection[Client],
        outcome: Outcome,
        complaints: list[str],
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._former = former
        self._current = _Release("the current release", code_of(_THIS))
        self._senders = senders
        self._outcome = outcome
        self._complaints = complaints
        self._say = say
        self._dice = random.Random(outcome.seed)
        self._shell = Shell({**cluster.env, **self._current.code}, cluster.gateways[0].address, show=False)
        self.waits = _Waits(senders)

    async def run(self, rounds: int) -> None:
        for number in range(1, rounds + 1):
            await self._upgrade(f"round {number}, upgrade")
            await self._roll_back(f"round {number}, rollback")
            self._outcome.rounds += 1
        await self._upgrade("last upgrade")
        await self._finalize()
        await self._refuse()

    async def _upgrade(self, step: str) -> None:
        """Replace all processes in the documented order. After that, the upgrade could be finalized."""
        for process in self._cluster.processes:
            await self._replace(step, process, self._current)
        done = await self._call("finalize-upgrade --dry-run")
        if done.returncode != 0:
            self._complain(f"{step}: the check before finalizing failed: {done.stderr}")

    async def _roll_back(self, step: str) -> None:
        for process in reversed(self._cluster.processes):
            await self._replace(step, process, self._former)
        done = await self._call("finalize-upgrade --dry-run")
        if done.returncode == 0:
            self._complain(f"{step}: the former release says that the upgrade can be finalized: {done.stdout}")

    async def _finalize(self) -> None:
        done = await self._call("finalize-upgrade --yes")
        self._say(f"finalize-upgrade: {(done.stdout + done.stderr).strip()}")
        if done.returncode != 0:
            raise NoProgress(f"finalize-upgrade ended with status {done.returncode}")
        for storage in self._cluster.storages:
            await self._replace("finalized", storage, self._current, kill=False)
        state = await trio.to_thread.run_sync(self._shell.json, "cluster")
        intakes = [each["intake"] for each in state["members"] if each["service"] == "storage"]
        if state["state_format"] != NEWEST_STATE_FORMAT or not all(intakes):
            self._complain(f"state format {state['state_format']}, and storage instances have intakes: {intakes}")
        for process in self._cluster.processes:
            await self._replace("finalized", process, self._current, kill=process.service == "storage")

    async def _refuse(self) -> None:
        """Run a storage instance of the former release for a while. It must not take over any partition."""
        intruder = self._cluster.add("storage", **self._former.code)
        intruder.start()
        try:
            await trio.to_thread.run_sync(once, "refusals", lambda: _refused(intruder), bool)
            await trio.sleep(_REFUSING_SECONDS)
            members = (await trio.to_thread.run_sync(self._shell.json, "cluster"))["members"]
            owned = [each.get("owned", 0) for each in members if each["address"] == intruder.address]
            self._say(f"{intruder.name} of {self._former.name} refused {', '.join(sorted(_refused(intruder)))}")
            if any(owned) or intruder.events("partition taken over"):
                self._complain(f"{intruder.name} of {self._former.name} owns {owned} partitions")
        finally:
            await trio.to_thread.run_sync(self._stop, intruder)
        await await_acks(self._senders, PROGRESS_SECONDS)
        self._say(f"{intruder.name} stopped; a producer waited for {self.waits.take():.1f} s meanwhile")

    async def _replace(
        self, step: str, process: ServiceProcess, release: _Release, *, kill: bool | None = None
    ) -> None:
        """Stop a process and start it with the code of ``release``. Without ``kill``, the seed decides how it stops."""
        kill = self._dice.random() < _KILLED if kill is None else kill
        began = trio.current_time()
        if not process.running:
            self._complain(f"{process.name} exited unexpectedly with status {process.process.status}")
        if kill:
            await trio.to_thread.run_sync(process.kill)
            self._outcome.killed += 1
        else:
            await trio.to_thread.run_sync(self._stop, process)
            self._outcome.stopped += 1
        process.env |= release.code
        process.start()
        await trio.to_thread.run_sync(process.await_ready)
        while not await trio.to_thread.run_sync(process.is_ready):  # noqa: ASYNC110  another process does it
            await trio.sleep(_LOOK_SECONDS)
        ready = trio.current_time() - began
        await await_acks(self._senders, PROGRESS_SECONDS)
        waited = self.waits.take()
        how = "kill -9" if kill else "SIGTERM"
        text = f"{step}: {process.name}, {how}, {release.name}"
        self._say(f"{text}: ready after {ready:.1f} s, a producer waited for {waited:.1f} s")
        if waited > self._outcome.longest_wait:
            self._outcome.longest_wait, self._outcome.longest_step = waited, text

    def _stop(self, process: ServiceProcess) -> None:
        status = process.stop()
        if status != 0:
            self._complain(f"{process.name} exited with status {status} on SIGTERM")

    async def _call(self, command: str) -> Any:
        return await trio.to_thread.run_sync(self._shell.run, command)

    def _complain(self, text: str) -> None:
        self._say(text)
        self._complaints.append(text)


def _refused(process: ServiceProcess) -> set[str]:
    """Return the partitions that a process refused because of their format."""
    return {
        str(event["partition"]) for event in process.events(_REFUSAL) if _REFUSAL_REASON in str(event.get("reason"))
    }


async def run(directory: Path, baseline: Path, *, rounds: int, seed: int, say: Callable[[str], None]) -> Outcome:
    """Run and check. Logs and history are in ``directory``. ``say`` is called with progress messages."""
    outcome = Outcome(seed)
    complaints: list[str] = []
    clients = directory / "clients"
    clients.mkdir()
    began = time.monotonic()

    def report_line(text: str) -> None:
        say(f"{time.monotonic() - began:7.1f} s  {text}")

    former = _Release("the former release", code_of(baseline))
    with running_cluster(
        directory / "cluster",
        gateways=2,
        storages=2,
        coordinators=2,
        env={**COMMON_SETTINGS, **former.code},
        show_logs=False,
    ) as cluster:
        await trio.to_thread.run_sync(
            lambda: ConfluentClient(cluster.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
        )
        senders = producers(cluster.bootstrap, clients)
        members = groups(cluster.bootstrap, clients, *COMMITTED_BY_CLIENT)
        others = [*members, *readers(cluster.bootstrap, clients)]
        upgrades = _Upgrades(cluster, former, senders, outcome, complaints, report_line)
        async with trio.open_nursery() as nursery:
            try:
                for client in others:
                    await nursery.start(client.run)
                # Their first offsets are those of an empty log.
                await await_shares(members, PROGRESS_SECONDS)
                for client in senders:
                    await nursery.start(client.run)
                await await_acks(senders, PROGRESS_SECONDS)
                report_line(f"everything is running with the code of {former.name}; seed {seed}")
                nursery.start_soon(upgrades.waits.watch)
                await upgrades.run(rounds)
                await finish(senders, others, report_line)
                complaints += await trio.to_thread.run_sync(_lost_commits, cluster, members)
            except (NoProgress, RuntimeError, AssertionError) as error:
                report_line(str(error))
                complaints.append(str(error))
                # Acked records are checked in any case.
                for client in (*senders, *others):
                    await client.end()
            nursery.cancel_scope.cancel()
        try:
            await read_at_the_end(cluster.bootstrap, clients)
        except NoProgress as error:
            complaints.append(str(error))
        complaints += crashes(process.log for process in cluster.processes)
    outcome.verdict = judge(
        events(clients),
        {client.name: promise for client, promise in senders.items()},
        last_reader=LAST_READER,
        repeating={member.name for member in members},
        committing={member.name for member in members},
    )
    outcome.verdict.complaints[:0] = [*complaints, *_errors(outcome.verdict, senders)]
    return outcome


def _lost_commits(cluster: Cluster, members: Collection[Client]) -> list[str]:
    """Return a complaint for each group that did not commit all that its members have read."""
    client = ConfluentClient(cluster.bootstrap)
    return [
        f"commits of {member.name}: {committed} instead of {member.highest}"
        for member in members
        if (committed := client.committed(member.name, TOPIC)) != member.highest
    ]


def _errors(verdict: Verdict, senders: Mapping[Client, Promise]) -> list[str]:
    """Return the errors that applications saw, except those of the producer without retries."""
    failed = [
        f"{client.name} gave up records: {verdict.producers[client.name].failed}"
        for client, promise in senders.items()
        if promise != RECONNECTING and verdict.producers[client.name].failed
    ]
    noted = [
        f"{name} reported {', '.join(sorted(errors - RECONNECTS))}"
        for name, errors in verdict.noted.items()
        if errors - RECONNECTS
    ]
    return failed + noted


def _table(outcome: Outcome) -> str:
    lines = [
        "",
        f"rounds                 {outcome.rounds}, seed {outcome.seed}",
        f"replaced processes     {outcome.stopped} by SIGTERM, {outcome.killed} by kill -9",
        f"longest wait           {outcome.longest_wait:.1f} s for an ack of a partition ({outcome.longest_step})",
        *verdict_lines(outcome.verdict),
    ]
    return "\n".join(lines)


def main() -> int:
    """Return 0 without complaints. Otherwise keep all logs and return 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.upgrades")
    parser.add_argument("--baseline", type=Path, required=True, help="a checkout of the former release")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="also keep the logs of a run without complaints")
    options = parser.parse_args()
    if not (options.baseline / "services").is_dir():
        parser.error(f"{options.baseline} is not a checkout of KafScale")
    directory = Path(tempfile.mkdtemp(prefix="kafscale-upgrades-"))

    async def whole() -> Outcome:
        return await run(
            directory,
            options.baseline,
            rounds=options.rounds,
            seed=options.seed,
            say=lambda line: print(line, flush=True),
        )

    outcome = trio.run(whole)
    print(_table(outcome))
    complaints = outcome.verdict.complaints
    for line in shortened(complaints):
        print(line)
    if complaints or options.keep:
        print(f"{len(complaints)} complaints; logs and history are kept in {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
