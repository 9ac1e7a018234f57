"""KafScale as users run it: ``kafscale run`` as a process on a free port of 127.0.0.1."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers.process import ServerProcess

COMMAND = (sys.executable, "-c", "from kafscale_tools.cli.main import main; main()", "run")


class KafscaleBroker:
    """A process that the constructor starts. It can be killed and restarted with the same data and port."""

    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "broker.log"
        # Tests of the console turn it on.
        self._env = {"KAFSCALE_DATA_DIR": str(directory / "data"), "KAFSCALE_CONSOLE": "false", **env}
        self._port = 0
        self._rpc = "127.0.0.1:0"
        self._process = self._start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def rpc(self) -> str:
        """The gRPC address of its storage."""
        return self._rpc

    @property
    def process(self) -> ServerProcess:
        return self._process

    def _start(self) -> ServerProcess:
        address = {
            "KAFSCALE_BROKER_ADDR": f"127.0.0.1:{self._port}",
            "KAFSCALE_RPC_ADDR": self._rpc,
            "KAFSCALE_HTTP_ADDR": "127.0.0.1:0",
        }
        process = ServerProcess(COMMAND, log=self._log, env={**self._env, **address})
        try:
            self._port = process.wait_for(_listening_port, timeout=60)
            self._rpc = process.wait_for(_rpc_address, timeout=60)
        except RuntimeError:
            process.kill()
            raise
        return process

    def kill_and_restart(self) -> None:
        """Send SIGKILL, then run the same command with the same data and port."""
        self._process.kill()
        self._process = self._start()

    def stop(self) -> None:
        """Stop gracefully. Raise if the broker exits with another status than 0."""
        status = self._process.stop()
        if status != 0:
            raise RuntimeError(f"kafscale run exited with status {status}:\n{self._process.tail()}")


def _listening_port(line: str) -> int | None:
    port = _logged(line, "listening").get("port")
    return None if port is None else int(port)


def _rpc_address(line: str) -> str | None:
    return _logged(line, "serving").get("rpc")


def _logged(line: str, event: str) -> dict[str, Any]:
    """Return the log entry in a line if its event is ``event``, or else an empty dict."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) and entry.get("event") == event else {}
