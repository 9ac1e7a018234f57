"""`make sim`: run many seeds in worker processes, print the violations, and how to replay a seed.

    python -m tests.sim.run [--seeds 3000 | --seeds 100..199] [--seed 17] [--workers 2]
                            [--variant NAME | --faults-of NAME | --groups | --without-intake | --rewrites
                             | --one-process]

The trace of a failed seed, and of a single seed in any case, is written to a file.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from tests.sim.faults import KINDS, REWRITE_OPERATIONS
from tests.sim.group_nemesis import ALONE_EVENTS, GROUP_KINDS
from tests.sim.result import Result
from tests.sim.variants import VARIANTS
from tests.sim.world import GROUPS_TROUBLED_SECONDS, REWRITES_TROUBLED_SECONDS, TROUBLED_SECONDS, simulate
from tests.support.scheduling import collect

_REPORT_SECONDS = 10.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Simulated:
    """The product and the faults to simulate: by default the unchanged product with the usual faults."""

    variant: str = ""
    # The faults of a variant with the unchanged product.
    faults_of: str = ""
    groups_alone: bool = False
    # The cluster has state format 1, in which storage instances have no intakes.
    without_intake: bool = False
    # The cluster has state format 3, in which storage instances merge and compact logs.
    rewrites: bool = False
    # Half of the gateways append at once, as if they were in the process of the storage instances.
    one_process: bool = False

    @property
    def options(self) -> str:
        """The options of this command, with a trailing space."""
        if self.without_intake:
            return "--without-intake "
        if self.rewrites:
            return "--rewrites "
        if self.one_process:
            return "--one-process "
        if self.variant:
            return f"--variant {self.variant} "
        if self.faults_of:
            return f"--faults-of {self.faults_of} "
        return "--groups " if self.groups_alone else ""

    @property
    def replay_command(self) -> str:
        """The command that replays a seed, which must be appended."""
        return f"python -m tests.sim.run {self.options}--seed"


THE_PRODUCT = Simulated()
GROUPS_ALONE = Simulated(groups_alone=True)
WITHOUT_INTAKES = Simulated(without_intake=True)
REWRITES = Simulated(rewrites=True)
ONE_PROCESS = Simulated(one_process=True)


def run_seed(seed: int, what: Simulated = THE_PRODUCT, keep_trace: bool = False) -> Result:
    """Simulate a seed, that of a variant only until it is detected."""
    if what.variant:
        broken = VARIANTS[what.variant]
        with broken.applied():
            result = broken.simulate(seed, keep_trace=keep_trace, until_violation=True)
    elif what.faults_of:
        result = VARIANTS[what.faults_of].simulate(seed, keep_trace=keep_trace)
    elif what.groups_alone:
        result = simulate(
            seed, troubled_seconds=GROUPS_TROUBLED_SECONDS, groups=True, logs=False, keep_trace=keep_trace
        )
    else:
        result = simulate(
            seed,
            troubled_seconds=REWRITES_TROUBLED_SECONDS if what.rewrites else TROUBLED_SECONDS,
            intake=not what.without_intake,
            rewrites=what.rewrites,
            one_process=what.one_process,
            keep_trace=keep_trace,
        )
    collect()
    return result


def run_many(seeds: Iterable[int], what: Simulated = THE_PRODUCT, *, workers: int) -> Iterator[Result]:
    """Return results in the order of seeds. A seed runs only shortly before its result is requested."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = iter(seeds)
        futures = [pool.submit(run_seed, seed, what) for seed in islice(waiting, 2 * workers)]
        try:
            while futures:
                yield futures.pop(0).result()
                for seed in waiting:
                    futures.append(pool.submit(run_seed, seed, what))
                    break
        finally:
            pool.shutdown(cancel_futures=True)


def write_trace(result: Result, directory: Path) -> Path:
    path = directory / f"seed-{result.seed}.txt"
    lines = [*map(str, result.violations), "", *result.trace]
    path.write_text("\n".join(lines) + "\n")
    return path


def _range(text: str) -> range:
    first, dots, last = text.partition("..")
    return range(int(first), int(last) + 1) if dots else range(int(first))


class _Report:
    def __init__(self, total: int) -> None:
        self._total = total
        self._began = self._said = time.monotonic()
        self.done = self.failed = self.acked = self.read = self.commits = 0
        self.faults: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        self.done += 1
        self.failed += bool(result.violations)
        self.acked += result.records_acked
        self.read += result.records_read
        self.commits += result.group_commits
        self.faults += result.faults
        self.kinds.update({violation.kind for violation in result.violations})
        if time.monotonic() - self._said >= _REPORT_SECONDS:
            self._said = time.monotonic()
            print(self, flush=True)

    def __str__(self) -> str:
        seconds = time.monotonic() - self._began
        return (
            f"{self.done} of {self._total} seeds in {seconds:.0f} s, {self.failed} failed, {self.acked} records acked, "
            f"{self.read} read, {self.commits} group commits acked, {sum(self.faults.values())} faults"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.run")
    parser.add_argument("--seeds", type=_range, default=range(100))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--variant", choices=sorted(VARIANTS), default="", help="simulate a broken product with its faults"
    )
    kinds.add_argument(
        "--faults-of", choices=sorted(VARIANTS), default="", help="simulate the product with a variant's faults"
    )
    kinds.add_argument("--without-intake", action="store_true", help="simulate a cluster of state format 1")
    kinds.add_argument("--rewrites", action="store_true", help="simulate a cluster whose logs are merged and compacted")
    kinds.add_argument("--one-process", action="store_true", help="let half of the gateways append at once")
    kinds.add_argument("--groups", action="store_true", help="simulate only consumer groups, without logs")
    parser.add_argument("--traces", type=Path, help="the directory for traces (default: a new temporary directory)")
    arguments = parser.parse_args()
    traces = arguments.traces or Path(tempfile.mkdtemp(prefix="kafscale-sim-"))
    traces.mkdir(parents=True, exist_ok=True)
    what = Simulated(
        arguments.variant,
        arguments.faults_of,
        groups_alone=arguments.groups,
        without_intake=arguments.without_intake,
        rewrites=arguments.rewrites,
        one_process=arguments.one_process,
    )
    if arguments.seed is not None:
        result = run_seed(arguments.seed, what, keep_trace=True)
        _print_result(result, what, traces)
        return bool(result.violations)
    report = _Report(len(arguments.seeds))
    results = run_many(arguments.seeds, what, workers=arguments.workers)
    for result in results:
        report.add(result)
        if result.violations:
            _print_result(result, what, traces)
    print(report)
    for kind in (*KINDS, *REWRITE_OPERATIONS, *GROUP_KINDS, *ALONE_EVENTS):
        print(f"  {kind:<22} {report.faults[kind]}")
    if report.kinds:
        print("violations by number of seeds:", dict(report.kinds))
    return bool(report.failed)


def _print_result(result: Result, what: Simulated, traces: Path) -> None:
    path = write_trace(result, traces)
    outcome = "FAILED" if result.violations else "good"
    print(f"seed {result.seed} {outcome}: {result.records_acked} records acked; trace in {path}")
    for violation in result.violations[:_SHOWN]:
        print(f"  {str(violation)[:400]}")
    if result.violations:
        print(f"  replay: {what.replay_command} {result.seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
