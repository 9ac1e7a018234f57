"""MinIO for tests: built once from its Go module and started on a free loopback port.

``minio/go.mod`` pins the version. With ``KAFSCALE_TEST_CONTAINERS=1`` the fixture `minio` is a container of the same
release on the running container engine.
"""

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpcore
from testcontainers.core.container import DockerContainer

from kafscale.objects.s3_wire import S3Config, Signer, static_credentials
from tests.servers.go_build import GoServer
from tests.servers.ports import free_ports

SERVER = GoServer("MinIO", Path(__file__).parent / "minio", "github.com/minio/minio", "some minutes")
IMAGE = "minio/minio:RELEASE.2025-09-07T16-13-09Z"
ACCESS_KEY = "kafscale"
SECRET_KEY = "kafscale-secret"
REGION = "us-east-1"
_SETTINGS = {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY, "MINIO_BROWSER": "off"}
_PORT = 9000
"""The port in a container."""
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0

_numbers = itertools.count()
"""Numbers of buckets, global because several Minio objects can be the same server."""


class Minio:
    """A running server. ``pid`` is its process id if the tests started it as a process."""

    def __init__(self, endpoint: str, pid: int | None = None) -> None:
        self.endpoint = endpoint
        self.pid = pid
        self.access_key = ACCESS_KEY
        self.secret_key = SECRET_KEY

    def new_bucket(self, name: str = "") -> S3Config:
        """Create a bucket, by default with a unique name, and return the config for it."""
        config = S3Config(name or f"test-{next(_numbers)}", REGION, self.endpoint, ACCESS_KEY, SECRET_KEY)
        target = Signer(config, REGION, static_credentials(config)).target("PUT", "", {}, datetime.now(UTC))
        reply = httpcore.request("PUT", self.endpoint + target)
        if reply.status != 200:
            raise RuntimeError(f"MinIO did not create bucket {config.bucket}: {reply.status} {reply.content!r}")
        return config

    def broker_settings(self, bucket: str = "") -> dict[str, str]:
        """Create a bucket as `new_bucket` does and return the environment of a process that uses it."""
        config = self.new_bucket(bucket)
        return {
            "KAFSCALE_S3_BUCKET": config.bucket,
            "KAFSCALE_S3_REGION": config.region,
            "KAFSCALE_S3_ENDPOINT": config.endpoint,
            "KAFSCALE_S3_ACCESS_KEY": config.access_key,
            "KAFSCALE_S3_SECRET_KEY": config.secret_key,
        }


@contextmanager
def running_minio(directory: Path) -> Iterator[Minio]:
    """Run a server with its data in ``directory``."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    log = directory / "minio.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [SERVER.build(), "server", "--quiet", "--address", address, directory / "data"],
            env={**os.environ, **_SETTINGS},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        _await_ready(f"http://{address}", lambda: process.poll() is None, lambda: log.read_text(errors="replace"))
        yield Minio(f"http://{address}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def contained_minio() -> Iterator[Minio]:
    """Run a server in a container. Its data is lost with the container."""
    container = DockerContainer(IMAGE, command="minio server --quiet /data", env=_SETTINGS, ports=[_PORT])
    with container:

        def runs() -> bool:
            container.reload()
            return container.status == "running"

        endpoint = f"http://{container.get_container_host_ip()}:{container.get_exposed_port(_PORT)}"
        _await_ready(endpoint, runs, lambda: b"".join(container.get_logs()).decode(errors="replace"))
        yield Minio(endpoint)


def _await_ready(endpoint: str, runs: Callable[[], bool], log: Callable[[], str]) -> None:
    """Wait until the server answers a signed request, because its health endpoint answers too early."""
    deadline = time.monotonic() + _START_SECONDS
    config = S3Config("no-such-bucket", REGION, endpoint, ACCESS_KEY, SECRET_KEY)
    signer = Signer(config, REGION, static_credentials(config))
    while runs() and time.monotonic() < deadline:
        try:
            if httpcore.request("GET", endpoint + signer.target("GET", "", {}, datetime.now(UTC))).status == 404:
                return
        except (httpcore.NetworkError, httpcore.RemoteProtocolError):
            # RemoteProtocolError: an engine accepts connections to a container's port before the server listens.
            pass
        time.sleep(0.05)
    raise RuntimeError(f"MinIO did not start: {log()[-2000:]}")
