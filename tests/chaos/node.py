"""A process of a chaos run, which is killed, paused and restarted with the same settings."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.signals import pause

STOP_SECONDS = 60.0


class Node:
    """A process. While ``wanted``, the supervisor restarts it if it exits."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.wanted = False
        self._argv = list(argv)
        # Do not pass on settings of this machine.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("KAFSCALE_")}
        self._env = inherited | dict(env)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def status(self) -> int | None:
        """The exit status, or None if it runs or has never been started."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int | None:
        """The process id, or None if it does not run."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process unless it runs. Do not wait until it is ready."""
        self.wanted = True
        if self.running:
            return
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._argv, env=self._env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended."""
        self.wanted = False
        self._send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self) -> int | None:
        """Send SIGTERM and return the exit status, or None if it was killed after a timeout or does not run."""
        self.wanted = False
        if self._process is None or not self.running:
            return None
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def pause(self) -> None:
        if self._process is not None and self._process.poll() is None:
            pause(self._process.pid)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
