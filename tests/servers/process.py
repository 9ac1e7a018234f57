"""A server process under test. Its output goes to a file and is watched line by line."""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.servers.signals import pause

T = TypeVar("T")


class ServerProcess:
    """Starts ``argv`` when constructed. ``stop`` and ``kill`` end it; leaving the ``with`` block stops it."""

    def __init__(
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, directory: Path | None = None
    ) -> None:
        self.log = log
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            list(argv),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = self._process.stdout
        if stream is None:
            raise RuntimeError("the process was started without a pipe")
        with self.log.open("ab", buffering=0) as log:
            for line in stream:
                log.write(line)
                self._lines.put(line.decode(errors="replace"))
        self._lines.put(None)

    @property
    def status(self) -> int | None:
        """The exit status, or None while the process runs."""
        return self._process.poll()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, found: Callable[[str], T | None], *, timeout: float) -> T:
        """Return the first result of ``found`` that is not None. Raise if the process ends first or the time is up."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise RuntimeError(f"not ready within {timeout} s:\n{self.tail()}") from None
            if line is None:
                raise RuntimeError(f"exited before it was ready:\n{self.tail()}")
            result = found(line)
            if result is not None:
                return result

    def tail(self) -> str:
        """Return the last lines of the output."""
        return "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-40:])

    def stop(self, *, timeout: float = 30.0) -> int:
        """Send SIGTERM and return the exit status. Kill the process and raise if it does not stop in time."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            # A paused process handles SIGTERM only after it resumes.
            self.resume()
        try:
            status = self._process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"did not stop within {timeout} s:\n{self.tail()}") from None
        self._close()
        return status

    def pause(self) -> None:
        """Send SIGSTOP. The process keeps its connections but does nothing."""
        pause(self._process.pid)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.stop()
        else:
            self._close()
