"""CPU time and memory of server processes during a block, from /proc (Linux)."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TOUCHED_BYTES = 1 << 20


@dataclass(slots=True)
class Usage:
    """The usage during a block, set at its end."""

    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0


@contextmanager
def measured(pid: int) -> Iterator[Usage]:
    """Measure CPU time and peak resident memory during the block."""
    process = _PROC / str(pid)
    # proc(5): writing 5 resets the peak resident set size.
    (process / "clear_refs").write_text("5")
    usage = Usage()
    before = _cpu_seconds(process)
    yield usage
    usage.cpu_seconds = _cpu_seconds(process) - before
    usage.peak_rss_bytes = _peak_rss(process)


@contextmanager
def measured_each(pids: Mapping[str, int]) -> Iterator[dict[str, Usage]]:
    """Measure several processes, by the names in ``pids``."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(measured(pid)) for name, pid in pids.items()}


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used so far."""
    return _cpu_seconds(_PROC / str(pid))


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Return ids and commands of all descendants of a process. Processes that end meanwhile may be missing."""
    for task in (_PROC / str(pid) / "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, (task / "children").read_text().split()):
                yield child, (_PROC / str(child) / "cmdline").read_text().replace("\0", " ")
                yield from descendants(child)


def touch_memory(scratch: Path, megabytes: float) -> None:
    """Fill this much of the page cache, but at most half of the free space, and free it.

    The host of a virtual machine may have taken its free memory. Whoever uses that first then needs about ten times
    the CPU time to store data.
    """
    size = min(megabytes * 1_000_000, shutil.disk_usage(scratch).free / 2)
    with tempfile.TemporaryFile(dir=scratch) as file:
        for _ in range(int(size / _TOUCHED_BYTES)):
            file.write(bytes(_TOUCHED_BYTES))


def _cpu_seconds(process: Path) -> float:
    # The command name, in parentheses, may contain spaces; utime and stime are fields 14 and 15.
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_rss(process: Path) -> int:
    for line in (process / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{process}/status has no VmHWM")
