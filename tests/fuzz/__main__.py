"""Sends damaged messages to all ports of a process, and to all decoders, and looks for what must not happen.

Usage: ``python -m tests.fuzz [--minutes 1] [--seed N] [--only NAME] [--first N] [--count N]``. ``--minutes`` is the
time for each target. The status is 1 if something was found.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import trio

from tests.fuzz import attacks, codecs, other_attacks, services
from tests.fuzz.finding import Finding
from tests.fuzz.rounds import run

TARGETS = {
    "tls": attacks.tls,
    "sasl": attacks.sasl,
    "kafka": attacks.kafka,
    "http": other_attacks.http,
    "rpc": other_attacks.rpc,
}
_MOST_FINDINGS = 20
_PROGRESS_SECONDS = 10.0


def main() -> int:
    """Return 0 if nothing was found. Otherwise keep the logs and what was sent, and return 1."""
    names = [codecs.NAME, services.NAME, *TARGETS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", choices=names, help="one target")
    parser.add_argument("--first", type=int, default=0, help="the iteration to begin with, for a replay")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="the number of iterations")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="kafscale-fuzz-"))
    findings: list[Finding] = []
    for name in [options.only] if options.only else names:
        say(f"{name}: seed {options.seed}, {options.minutes:g} minutes")
        iterations = range(options.first, min(options.first + options.count, sys.maxsize))
        if name == codecs.NAME:
            found = _decoded(options.seed, iterations, options.minutes * 60)
        elif name == services.NAME:
            found = trio.run(services.run, options.seed, iterations, options.minutes * 60, say)
        else:
            place = directory / name
            place.mkdir()
            found = trio.run(run, name, TARGETS[name], place, options.seed, iterations, options.minutes * 60, say)
        for number, finding in enumerate(found):
            _show(finding, options.seed, directory / f"{name}-{number}.bin")
        say(f"{name}: {len(found)} findings")
        findings += found
    if findings:
        say(f"{len(findings)} findings; logs and inputs are kept in {directory}")
    return 1 if findings else 0


def say(line: str) -> None:
    print(line, flush=True)


def _decoded(seed: int, iterations: range, seconds: float) -> list[Finding]:
    found: list[Finding] = []
    began = shown = time.monotonic()
    for iteration in iterations:
        finding = codecs.attempt(seed, iteration)
        if finding is not None:
            found.append(finding)
        now = time.monotonic()
        if now - shown > _PROGRESS_SECONDS:
            shown = now
            say(f"codecs: {iteration - iterations.start} inputs, {len(found)} findings")
        if now - began > seconds or len(found) >= _MOST_FINDINGS:
            break
    return found


def _show(finding: Finding, seed: int, file: Path) -> None:
    file.write_bytes(finding.data)
    say(f"\n{finding.where}, iteration {finding.iteration}:\n{finding.what}")
    target = finding.where.partition(":")[0]
    what = f"--only {target} --seed {seed} --first {finding.iteration} --count {finding.count}"
    say(f"replay: python -m tests.fuzz {what}")


if __name__ == "__main__":
    sys.exit(main())
