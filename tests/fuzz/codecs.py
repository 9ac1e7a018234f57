"""Decoders in this process: whatever the bytes are, only the documented errors come out, soon, and in little memory."""

import resource
import time
import traceback
from random import Random

from tests.fuzz.cases import Case, all_cases
from tests.fuzz.finding import Finding
from tests.fuzz.mutation import chosen

NAME = "codecs"
_LONGEST_INPUT = 256 << 10
_SECONDS = 5.0
"""The CPU time for one input of up to 256 KiB, with a margin for slow machines."""
_GROWTH = 64 << 20
"""By how many bytes one input may raise the highest memory use of the process."""
_REPAIRED = 0.6


def input_of(seed: int, iteration: int) -> tuple[Case, bytes]:
    """Return a case and an input for it. The same seed and iteration always give the same ones."""
    cases = all_cases()
    case = cases[iteration % len(cases)]
    random = Random(f"{seed}/{iteration}")
    data = chosen(random, case.valid, most=_LONGEST_INPUT)
    if case.repair is not None and random.random() < _REPAIRED:
        data = case.repair(data)
    return case, data


def attempt(seed: int, iteration: int) -> Finding | None:
    """Try one input."""
    return _tried(*input_of(seed, iteration), iteration)


def _tried(case: Case, data: bytes, iteration: int) -> Finding | None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    fault = ""
    try:
        case.decode(data)
    except case.errors:
        pass
    except Exception:  # noqa: BLE001  that is what is looked for
        fault = traceback.format_exc()
    taken = time.process_time() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if taken > _SECONDS:
        fault = f"{taken:.1f} s of CPU time for {len(data)} bytes"
    elif grown > _GROWTH:
        fault = f"{grown >> 20} MiB for {len(data)} bytes"
    return Finding(f"{NAME}: {case.name}", iteration, fault, data) if fault else None
