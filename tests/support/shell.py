"""The `kafscale` command as users run it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

LONG_SECONDS = 90.0
PROGRAM = "from kafscale_tools.cli.main import main; main(prog_name='kafscale')"


class Shell:
    """Runs `kafscale` with only ``settings``. ``servers`` are the admin servers that it uses.

    ``show``: print commands and what they print, which pytest shows if the test failed.
    """

    def __init__(self, settings: Mapping[str, str], servers: str, *, show: bool = True) -> None:
        self._show = show
        others = {name: value for name, value in os.environ.items() if not name.startswith("KAFSCALE_")}
        patient = {"KAFSCALE_RPC_CONNECT_TIMEOUT_MS": "60000"}
        self._environ = {**others, **patient, **settings, "KAFSCALE_ADMIN_SERVER": servers}

    def run(self, command: str, stdin: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *command.split()],
            check=False,
            env={**self._environ, **environ},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LONG_SECONDS,
        )
        if self._show:
            print(f"$ kafscale {command}", done.stdout, done.stderr, f"status {done.returncode}", sep="\n")
        return done

    @contextmanager
    def running(self, command: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command that runs until SIGINT, even if this process ignores SIGINT. Its standard output is a pipe."""
        program = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {PROGRAM}"
        args = [sys.executable, "-c", program, *command.split()]
        with subprocess.Popen(args, env=self._environ, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def rows(self, command: str) -> list[list[str]]:
        """Return the words of each line below the headings."""
        done = self.run(command)
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()[1:]]

    def json(self, command: str) -> Any:
        done = self.run(f"{command} -o json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def once(what: str, look: Callable[[], Any], there: Callable[[Any], bool]) -> Any:
    """Repeat ``look`` until its result satisfies ``there``, and return it."""
    deadline = time.monotonic() + LONG_SECONDS
    while not there(found := look()):
        assert time.monotonic() < deadline, f"{what}: {found}"
        time.sleep(0.2)
    return found
