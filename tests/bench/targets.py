"""The compared servers, newly started, with the processes that work for each."""

import os
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.servers.apache_kafka import apache_kafka
from tests.servers.cluster import code_of, running_cluster
from tests.servers.etcd import running_etcd
from tests.servers.minio import Minio, running_minio
from tests.support.broker import KafscaleBroker

KAFKA = "Apache Kafka"
NAMES = {
    "kafka": KAFKA,
    "directory": "KafScale, directory",
    "minio": "KafScale, MinIO",
    "four": "KafScale, 4 processes",
}
"""The names of servers by the short names in options."""
BASELINES = {"directory": "baseline, directory", "four": "baseline, 4 processes"}
"""The names of servers with the code of another checkout."""
_LEASE_SECONDS = 10  # longer than in tests, because an overloaded machine loses short leases


@dataclass(frozen=True, slots=True)
class Target:
    """A server. ``pids`` are the measured processes by their names in the table."""

    name: str
    bootstrap: str
    pids: dict[str, int]


def start_targets(
    stack: ExitStack, directory: Path, names: Collection[str], *, baseline: Path | None = None
) -> list[Target]:
    """Start the selected servers of `NAMES` in its order. ``stack`` stops them. They share one MinIO.

    ``baseline`` adds the servers of `BASELINES` that are selected with the code in another checkout.
    """
    targets = []
    code = {} if baseline is None else code_of(baseline)
    if "kafka" in names:
        kafka = stack.enter_context(apache_kafka(directory / "kafka"))
        targets.append(Target(KAFKA, kafka.bootstrap, {"Kafka": kafka.process.pid}))
    if "directory" in names:
        if code:
            targets.append(_one_process(stack, directory / "one-before", BASELINES["directory"], env=code))
        targets.append(_one_process(stack, directory / "one", NAMES["directory"]))
    if "minio" in names or "four" in names:
        (directory / "minio").mkdir()
        minio = stack.enter_context(running_minio(directory / "minio"))
        if "minio" in names:
            targets.append(_one_process(stack, directory / "s3", NAMES["minio"], minio=minio))
        if "four" in names:
            if code:
                targets.append(_four_processes(stack, directory / "before", BASELINES["four"], minio, code))
            targets.append(_four_processes(stack, directory / "four", NAMES["four"], minio, {}))
    return targets


def _one_process(
    stack: ExitStack, directory: Path, name: str, *, minio: Minio | None = None, env: Mapping[str, str] | None = None
) -> Target:
    settings = {} if minio is None else minio.broker_settings("bench")
    broker = KafscaleBroker(directory, {**settings, **(env or {})})
    stack.callback(broker.stop)
    return Target(name, broker.bootstrap, {"KafScale": broker.process.pid, **_pid_of(minio)})


def _four_processes(stack: ExitStack, directory: Path, name: str, minio: Minio, code: dict[str, str]) -> Target:
    """Start a gateway, a storage instance, an indexer and a coordinator with their own etcd."""
    (directory / "etcd").mkdir(parents=True)
    etcd = stack.enter_context(running_etcd(directory / "etcd"))
    env = {"KAFSCALE_LEASE_TTL_SECONDS": str(_LEASE_SECONDS), **code}
    cluster = stack.enter_context(running_cluster(directory, etcd=etcd, minio=minio, env=env, show_logs=False))
    pids = {process.service: process.process.pid for process in reversed(cluster.processes)}
    return Target(name, cluster.bootstrap, {**pids, **_pid_of(minio), "etcd": etcd.members[0].pid})


def _pid_of(minio: Minio | None) -> dict[str, int]:
    return {} if minio is None or minio.pid is None else {"MinIO": minio.pid}


def load_average() -> str:
    """Return the load average of the last minute and the number of CPUs."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
