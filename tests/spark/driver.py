"""Drivers that a fault run kills. Each is a process with its JVM, and one is always started in advance."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.spark.session import environment, settings

_PROGRAM = Path(__file__).parent / "programs" / "faulty_stream.py"
_START_SECONDS = 120.0
_END_SECONDS = 150.0
"""Longer than a commit is retried."""


class Driver:
    """A process of `programs/faulty_stream.py`. ``orders`` is its directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.orders = directory
        self._events = 0
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        asked = settings(directory) | {
            # Two concurrent tasks. A task fails for good after four attempts.
            "spark.master": "local[2,4]",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
            "spark.log.level": "ERROR",
        }
        with (directory / "driver.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), json.dumps(asked), str(directory)],
                env={**os.environ, **environment()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))

    def await_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self.answer(1.0) is None:
            assert self._process.poll() is None, (self.orders / "driver.log").read_text()[-4000:]
            assert time.monotonic() < deadline, "the driver does not start"

    def answer(self, seconds: float = 0.0) -> dict[str, Any] | None:
        """Return its next unread answer."""
        try:
            return self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
        except queue.Empty:
            return None

    def tell(self, op: str, **what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **what}).encode() + b"\n")
        self._process.stdin.flush()

    def order(self, point: str, *, die: bool, goes_on: bool = False, seconds: float = _END_SECONDS) -> None:
        path = self.orders / f"{point}.new"
        path.write_text(json.dumps({"die": die, "goes_on": goes_on, "seconds": seconds}))
        path.rename(self.orders / point)

    def withdraw(self, point: str) -> None:
        (self.orders / point).unlink(missing_ok=True)

    def all_events(self) -> list[dict[str, Any]]:
        path = self.orders / "events"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def new_events(self) -> list[dict[str, Any]]:
        """Return the events that this method has not returned before."""
        found = self.all_events()[self._events :]
        self._events += len(found)
        return found

    def workers(self) -> list[int]:
        """Return the processes in which Spark runs Python, which its daemons forked."""
        parents = _parents()
        daemons = {pid for pid in _descendants(self._process.pid, parents) if "pyspark.daemon" in _arguments(pid)}
        return sorted(pid for pid in daemons if parents[pid] in daemons)

    def kill(self) -> None:
        """Send SIGKILL to the driver and its JVM. Daemons and workers notice and end."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


class Drivers:
    """Starts drivers in advance and hands them out one after the other. Call `end` at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.all: list[Driver] = []
        self._alive: list[Driver] = []
        self._spare = self._start()
        self.current = self.next()

    def next(self) -> Driver:
        """Return another driver. The current one has been killed."""
        self.current, self._spare = self._spare, self._start()
        self.current.await_ready()
        return self.current

    def kill(self) -> None:
        self._alive.remove(self.current)
        self.current.kill()

    def end(self) -> None:
        for driver in self._alive:
            driver.kill()

    def _start(self) -> Driver:
        made = Driver(self._directory / f"driver-{len(self.all)}")
        self.all.append(made)
        self._alive.append(made)
        return made


def await_gone(pid: int) -> None:
    """Wait until a process that is not a child has ended. Kill it if it takes too long."""
    deadline = time.monotonic() + _END_SECONDS
    while "pyspark.daemon" in _arguments(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _parents() -> dict[int, int]:
    """Return the parent of each process on this machine."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                found[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    return found


def _descendants(pid: int, parents: dict[int, int]) -> set[int]:
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def _arguments(pid: int) -> str:
    """Return nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
