"""KafScale's four services as processes, with etcd and MinIO, in any number. A test ends them through their handles."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpcore

from tests.servers.etcd import Etcd, running_etcd
from tests.servers.minio import Minio, running_minio
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess

LEASE_SECONDS = 2
START_SECONDS = 60.0


def code_of(checkout: Path) -> dict[str, str]:
    """Return the environment in which a service runs with the code of ``checkout``, whatever the current directory."""
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(checkout.resolve())}


class ServiceProcess:
    """One process of a service. It keeps its addresses across restarts."""

    def __init__(self, service: str, index: int, directory: Path, env: Mapping[str, str]) -> None:
        self.service = service
        self.name = f"{service}-{index}"
        self.log = directory / f"{self.name}.log"
        self.env = {"KAFSCALE_LOG_LEVEL": "info", **env}
        self.command = [sys.executable, "-m", f"services.{service}"]
        self._process: ServerProcess | None = None

    @property
    def address(self) -> str:
        """The address for other services."""
        return self.env["KAFSCALE_RPC_ADDR"]

    @property
    def http(self) -> str:
        """The address of /healthz, /readyz and /metrics."""
        return self.env["KAFSCALE_HTTP_ADDR"]

    @property
    def bootstrap(self) -> str:
        """The address of a gateway for Kafka clients."""
        return self.env["KAFSCALE_BROKER_ADDR"]

    @property
    def process(self) -> ServerProcess:
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.status is None

    def start(self) -> None:
        """Start the process without waiting until it is ready. A former one is killed, if it still runs."""
        self.end()
        self._process = ServerProcess(self.command, log=self.log, env=self.env)

    def await_ready(self, *, timeout: float = START_SECONDS) -> None:
        self.process.wait_for(lambda line: True if _is_event(line, "serving") else None, timeout=timeout)

    def is_ready(self) -> bool:
        return httpcore.request("GET", f"http://{self.http}/readyz").status == 200

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        return self.process.stop(timeout=60)

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended."""
        self.process.kill()

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def restart(self) -> None:
        """Kill the process if it runs, start it, and wait until it is ready."""
        self.start()
        self.await_ready()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()

    def events(self, name: str) -> list[dict[str, object]]:
        """Return the log entries of the event ``name`` so far."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines if _is_event(line, name)]


@dataclass
class Cluster:
    """A running cluster. ``env`` are the settings of all its processes."""

    directory: Path
    etcd: Etcd
    minio: Minio
    env: dict[str, str]
    gateways: list[ServiceProcess] = field(default_factory=list)
    storages: list[ServiceProcess] = field(default_factory=list)
    indexers: list[ServiceProcess] = field(default_factory=list)
    coordinators: list[ServiceProcess] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        """The addresses of all gateways."""
        return ",".join(gateway.bootstrap for gateway in self.gateways)

    @property
    def processes(self) -> list[ServiceProcess]:
        return [*self.coordinators, *self.indexers, *self.storages, *self.gateways]

    def add(self, service: str, **env: str) -> ServiceProcess:
        """Add a process of ``service`` without starting it. ``env`` are settings besides those of the cluster."""
        instances = {
            "gateway": self.gateways,
            "storage": self.storages,
            "indexer": self.indexers,
            "coordinator": self.coordinators,
        }[service]
        rpc, http, kafka = (f"127.0.0.1:{port}" for port in free_ports(3))
        addresses = {"KAFSCALE_RPC_ADDR": rpc, "KAFSCALE_HTTP_ADDR": http}
        if service == "gateway":
            addresses["KAFSCALE_BROKER_ADDR"] = kafka
        process = ServiceProcess(service, len(instances), self.directory, {**self.env, **addresses, **env})
        instances.append(process)
        return process

    def show_logs(self) -> None:
        """Print the end of each log, which pytest shows if the test failed."""
        for process in self.processes:
            if process.log.exists():
                lines = process.log.read_text(errors="replace").splitlines()[-40:]
                print(f"--- {process.log}", *lines, sep="\n")


@contextmanager
def running_cluster(
    directory: Path,
    *,
    gateways: int = 1,
    storages: int = 1,
    indexers: int = 1,
    coordinators: int = 1,
    env: Mapping[str, str] | None = None,
    etcd: Etcd | None = None,
    minio: Minio | None = None,
    show_logs: bool = True,
) -> Iterator[Cluster]:
    """Run a cluster. All processes are ready on entry and killed on exit. Logs are kept in ``directory``.

    ``env`` are settings for all processes. The cluster starts its own etcd and MinIO unless running ones are passed. In
    either case it has its own bucket and namespace. ``show_logs``: print the ends of the logs on exit.
    """
    with ExitStack() as servers:
        etcd = etcd or servers.enter_context(running_etcd(_created(directory / "etcd")))
        minio = minio or servers.enter_context(running_minio(_created(directory / "minio")))
        stored = minio.broker_settings()
        settings = {
            # Do not pass on settings of this machine. An empty variable counts as not set.
            **{name: "" for name in os.environ if name.startswith(("KAFSCALE_", "AWS_"))},
            **stored,
            "KAFSCALE_ETCD_ENDPOINTS": ",".join(etcd.endpoints),
            # Directories of several clusters can have the same name, but a process uses the name of a bucket once.
            "KAFSCALE_S3_NAMESPACE": f"{directory.name}-{stored['KAFSCALE_S3_BUCKET']}",
            "KAFSCALE_LEASE_TTL_SECONDS": str(LEASE_SECONDS),
            **(env or {}),
        }
        cluster = Cluster(directory, etcd, minio, settings)
        counts = {"coordinator": coordinators, "indexer": indexers, "storage": storages, "gateway": gateways}
        try:
            for service, count in counts.items():
                for _ in range(count):
                    cluster.add(service).start()
            for process in cluster.processes:
                process.await_ready()
            yield cluster
        finally:
            for process in cluster.processes:
                process.end()
            if show_logs:
                cluster.show_logs()


def _created(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _is_event(line: str, event: str) -> bool:
    """Return whether a log line is an entry of ``event``."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and entry.get("event") == event
