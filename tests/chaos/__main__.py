"""Faults on real processes with running clients for some minutes, then a check of all acked records.

Usage: ``python -m tests.chaos [--minutes 0.5] [--seed N] [--keep]``. `tests.chaos.run` describes a run,
`tests.chaos.faults` has the faults, and `tests.support.chaos.history` the checks.
"""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

import trio

from tests.chaos.report import shortened, table
from tests.chaos.run import Report, run


def main() -> int:
    """Return 0 without complaints. Otherwise keep all logs and return 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="also keep the logs of a run without complaints")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="kafscale-chaos-"))

    async def whole() -> Report:
        return await run(
            directory, minutes=options.minutes, seed=options.seed, say=lambda line: print(line, flush=True)
        )

    report = trio.run(whole)
    print(table(report))
    for line in shortened(report.complaints):
        print(line)
    if report.complaints or options.keep:
        print(f"{len(report.complaints)} complaints; logs and history are kept in {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
