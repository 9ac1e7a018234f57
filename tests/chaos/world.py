"""The processes of a chaos run: etcd, MinIO and the services, with a proxy on every link between them."""

import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpcore
import trio

from tests.chaos import storage
from tests.chaos.node import Node
from tests.servers.etcd import Member, running_etcd
from tests.servers.minio import ACCESS_KEY, SECRET_KEY, SERVER, Minio
from tests.servers.ports import free_ports
from tests.support.proxies.s3 import HEALTHY, S3FaultProxy
from tests.support.proxies.tcp import TcpProxy

LEASE_SECONDS = 3
_START_SECONDS = 60.0
_GATEWAYS, _STORAGES, _INDEXERS = 2, 3, 2
COMMON_SETTINGS = {
    "KAFSCALE_LEASE_TTL_SECONDS": str(LEASE_SECONDS),
    # Small, for many segments, so that lagging readers read from S3.
    "KAFSCALE_SEGMENT_BYTES": "32KB",
    "KAFSCALE_CACHE_SIZE": "256KB",
}
REWRITE_SETTINGS = {
    "KAFSCALE_REWRITE_CHECK_MS": "2000",
    "KAFSCALE_REWRITE_GRACE_MS": "2000",
    # A merged object needs at least 8 segments.
    "KAFSCALE_SEGMENT_INTERVAL_MS": "750",
    # The smallest sizes that are allowed.
    "KAFSCALE_REWRITE_BYTES": "1MB",
    "KAFSCALE_COMPACTION_MEMORY": "1MB",
    "KAFSCALE_MERGE_BYTES": "64KB",
}
"""Logs are rewritten so often that every fault meets rewrites, and readers find replaced objects deleted."""


@dataclass
class World:
    """The processes and proxies. ``links`` and ``s3`` are by user name. The last storage instance is a spare."""

    minio: Node
    etcd: Member
    bootstrap: str = ""
    gateways: list[Node] = field(default_factory=list)
    storages: list[Node] = field(default_factory=list)
    indexers: list[Node] = field(default_factory=list)
    links: dict[str, TcpProxy] = field(default_factory=dict)
    s3: dict[str, S3FaultProxy] = field(default_factory=dict)

    @property
    def spare(self) -> Node:
        return self.storages[-1]

    @property
    def nodes(self) -> Iterator[Node]:
        yield from (*self.gateways, *self.storages, *self.indexers)

    def heal(self) -> None:
        """Start every process except the spare, and remove all faults of links and S3."""
        for link in self.links.values():
            link.heal()
        for store in self.s3.values():
            store.faults = HEALTHY
        self.minio.start()
        self.minio.resume()
        self.etcd.start()
        self.etcd.resume()
        for node in self.nodes:
            node.resume()
            if node is not self.spare:
                node.start()


@asynccontextmanager
async def running_world(directory: Path, dice: random.Random) -> AsyncIterator[World]:
    """Start everything without waiting until all services are ready. ``dice`` drives the faults of S3 proxies."""
    with ExitStack() as servers:
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        minio = Node("minio", _minio_command(directory, address), _MINIO_ENV, directory)
        servers.callback(minio.kill)
        minio.start()
        etcd = servers.enter_context(running_etcd(directory))
        settings = await _bucket(f"http://{address}")
        world = World(minio, etcd.members[0])
        async with trio.open_nursery() as nursery:
            await _add_services(world, directory, settings, dice, nursery)
            try:
                for node in world.nodes:
                    if node is not world.spare:
                        node.start()
                yield world
            finally:
                for node in world.nodes:
                    node.kill()
            nursery.cancel_scope.cancel()


async def _add_services(
    world: World, directory: Path, settings: dict[str, str], dice: random.Random, nursery: trio.Nursery
) -> None:
    minio = urlsplit(settings["KAFSCALE_S3_ENDPOINT"]).netloc

    async def link(name: str, target: str) -> str:
        proxy = world.links[name] = TcpProxy(target)
        await nursery.start(proxy.run)
        return proxy.address

    async def store(name: str) -> str:
        proxy = world.s3[name] = S3FaultProxy(minio, dice.random)
        await nursery.start(proxy.run)
        return f"http://{proxy.address}"

    async def make(service: str, index: int) -> Node:
        name = f"{service}-{index}"
        rpc, http, kafka = (f"127.0.0.1:{port}" for port in free_ports(3))
        env = {
            **COMMON_SETTINGS,
            **REWRITE_SETTINGS,
            "KAFSCALE_ETCD_ENDPOINTS": await link(f"{name} > etcd", world.etcd.endpoint),
            "KAFSCALE_RPC_ADDR": rpc,
            "KAFSCALE_RPC_ADVERTISED_ADDR": await link(f"rpc > {name}", rpc),
            "KAFSCALE_HTTP_ADDR": http,
        }
        if service == "gateway":
            advertised = await link(f"clients > {name}", kafka)
            host, _, port = advertised.rpartition(":")
            env |= {"KAFSCALE_BROKER_ADDR": kafka, "KAFSCALE_ADVERTISED_HOST": host, "KAFSCALE_ADVERTISED_PORT": port}
            world.bootstrap = ",".join(filter(None, (world.bootstrap, advertised)))
        elif service in ("storage", "indexer"):
            env |= {**settings, "KAFSCALE_S3_ENDPOINT": await store(name)}
        command = storage.COMMAND if service == "storage" else [sys.executable, "-m", f"services.{service}"]
        return Node(name, command, env, directory)

    world.gateways += [await make("gateway", index) for index in range(_GATEWAYS)]
    world.storages += [await make("storage", index) for index in range(_STORAGES)]
    world.indexers += [await make("indexer", index) for index in range(_INDEXERS)]


_MINIO_ENV = {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY, "MINIO_BROWSER": "off"}


def _minio_command(directory: Path, address: str) -> list[str]:
    return [str(SERVER.build()), "server", "--quiet", "--address", address, str(directory / "minio")]


async def _bucket(endpoint: str) -> dict[str, str]:
    """Create a bucket as soon as MinIO is ready, and return its settings."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return await trio.to_thread.run_sync(Minio(endpoint).broker_settings, "chaos")
        except (RuntimeError, httpcore.NetworkError, httpcore.RemoteProtocolError):
            if time.monotonic() > deadline:
                raise
        await trio.sleep(0.1)
