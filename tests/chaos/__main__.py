"""Inject faults into real processes under load for some minutes, then check the acked records.

``python -m tests.chaos [--minutes 0.5] [--seed N] [--keep]``: see `tests.chaos.run`. The faults are in
`tests.chaos.faults`, the complaints in `tests.support.chaos.history`.
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
    """Return 0 without complaints. Otherwise return 1 and keep all logs."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="also keep the logs of a run without complaints")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="kafscale-chaos-"))

    async def whole() -> Report:
        return await run(directory, minutes=given.minutes, seed=given.seed, say=lambda line: print(line, flush=True))

    report = trio.run(whole)
    print(table(report))
    for line in shortened(report.complaints):
        print(line)
    if report.complaints or given.keep:
        print(f"{len(report.complaints)} complaints; logs and history are kept in {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
