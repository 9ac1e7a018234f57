"""etcd for tests: built once from its Go module, with one or more members on free loopback ports.

``etcd/go.mod`` pins the version. A test ends members through their handles.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpcore

from tests.servers.go_build import GoServer
from tests.servers.ports import free_ports
from tests.servers.signals import pause

SERVER = GoServer("etcd", Path(__file__).parent / "etcd", "go.etcd.io/etcd/server/v3", "half a minute")
ROOT_PASSWORD = "root-secret"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class ServerTls:
    """The PEM files of a server, and whether clients need a certificate of the CA."""

    ca_file: Path
    cert_file: Path
    key_file: Path
    client_auth: bool = False


class Member:
    """One etcd process. It keeps its ports and its data across restarts."""

    def __init__(self, name: str, directory: Path, arguments: Sequence[str], port: int, health_port: int) -> None:
        self.endpoint = f"127.0.0.1:{port}"
        self._name = name
        self._health = f"http://127.0.0.1:{health_port}/health"
        self._directory = directory
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process, unless it runs, without waiting until it is ready."""
        if self._process is not None and self._process.poll() is None:
            return
        with (self._directory / f"{self._name}.log").open("ab") as output:
            self._process = subprocess.Popen(
                [SERVER.build(), *self._arguments],
                # Do not pass on settings of another etcd on this machine.
                env={name: value for name, value in os.environ.items() if not name.startswith("ETCD_")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def await_ready(self) -> None:
        """Wait until the member answers a linearizable read, which needs a majority of the members."""
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if httpcore.request("GET", self._health, extensions={"timeout": {"read": 5.0}}).status == 200:
                    return
            except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError):
                pass
            time.sleep(0.02)
        log = (self._directory / f"{self._name}.log").read_text(errors="replace")
        raise RuntimeError(f"etcd did not start: {log[-2000:]}")

    def stop(self) -> None:
        """Send SIGTERM and wait until the process has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Send SIGSTOP. The process keeps its connections but does not answer."""
        if self._process is not None and self._process.poll() is None:
            pause(self._process.pid)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def restart(self) -> None:
        """Kill the process, start it, and wait until it is ready."""
        self.kill()
        self.start()
        self.await_ready()

    def lose(self) -> None:
        """Kill the process, delete its data, start it, and wait until it is ready."""
        self.kill()
        shutil.rmtree(self._directory / self._name)
        self.start()
        self.await_ready()

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._send(number)
        # A paused process handles SIGTERM only after it resumes.
        self._send(signal.SIGCONT)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class Etcd:
    """A running cluster."""

    members: list[Member]

    @property
    def endpoints(self) -> list[str]:
        return [member.endpoint for member in self.members]

    def enable_auth(self, user: str, password: str, prefix: str) -> None:
        """Require passwords, and allow ``user`` to read and write only keys with ``prefix``."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        permission = {"permType": "READWRITE", "key": _base64(prefix), "range_end": _base64(end)}
        for path, body in (
            ("user/add", {"name": "root", "password": ROOT_PASSWORD}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("role/add", {"name": "tested"}),
            ("role/grant", {"name": "tested", "perm": permission}),
            ("user/add", {"name": user, "password": password}),
            ("user/grant", {"user": user, "role": "tested"}),
            ("enable", {}),
        ):
            self._post(f"auth/{path}", body)

    def _post(self, path: str, body: dict[str, Any]) -> None:
        url = f"http://{self.members[0].endpoint}/v3/{path}"
        reply = httpcore.request("POST", url, content=json.dumps(body).encode())
        if reply.status != 200:
            raise RuntimeError(f"etcd rejected {path}: {reply.status} {reply.content!r}")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def running_etcd(
    directory: Path,
    *,
    members: int = 1,
    tls: ServerTls | None = None,
    token_seconds: int = 300,
    quota_bytes: int = 0,
) -> Iterator[Etcd]:
    """Run a cluster with its data in ``directory``. It is ready on entry.

    ``token_seconds`` is the time after which an unused auth token expires. ``quota_bytes`` 0 means etcd's default.
    """
    ports = [free_ports(3) for _ in range(members)]
    cluster = ",".join(f"member{index}=http://127.0.0.1:{ports[index][1]}" for index in range(members))
    scheme = "http" if tls is None else "https"
    made = []
    for index, (client, peer, health) in enumerate(ports):
        arguments = {
            "name": f"member{index}",
            "data-dir": str(directory / f"member{index}"),
            "listen-client-urls": f"{scheme}://127.0.0.1:{client}",
            "advertise-client-urls": f"{scheme}://127.0.0.1:{client}",
            "listen-peer-urls": f"http://127.0.0.1:{peer}",
            "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
            "initial-cluster": cluster,
            "listen-metrics-urls": f"http://127.0.0.1:{health}",
            "auth-token-ttl": str(token_seconds),
            "log-level": "warn",
            "quota-backend-bytes": str(quota_bytes),
        }
        if tls is not None:
            arguments |= {"cert-file": str(tls.cert_file), "key-file": str(tls.key_file)}
            if tls.client_auth:
                arguments |= {"client-cert-auth": "true", "trusted-ca-file": str(tls.ca_file)}
        command = [f"--{name}={value}" for name, value in arguments.items()]
        made.append(Member(f"member{index}", directory, command, client, health))
    try:
        for member in made:
            member.start()
        for member in made:
            member.await_ready()
        yield Etcd(made)
    finally:
        for member in made:
            member.kill()
