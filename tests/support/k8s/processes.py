"""Processes with the environment of the pods in the manifests, except for addresses on this machine."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpcore

from tests.servers.cluster import Cluster, ServiceProcess
from tests.servers.etcd import SERVER
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.support.k8s.live import Json

_MEMBER = "kafscale-etcd-0.kafscale-etcd"


def add(cluster: Cluster, service: str, environment: Mapping[str, str]) -> ServiceProcess:
    """Add a process with a pod's environment to ``cluster`` without starting it."""
    addresses = {name for name in environment if name.endswith(("_ADDR", "_ENDPOINTS", "_ENDPOINT"))}
    # Keep the bucket settings of the cluster, with keys and region.
    bucket = {name for name in environment if name.startswith("KAFSCALE_S3_") and name != "KAFSCALE_S3_NAMESPACE"}
    variables = {name: value for name, value in environment.items() if name not in addresses | bucket}
    if "KAFSCALE_LISTENERS" in variables:
        names = re.findall(r"(\w+)://", variables["KAFSCALE_LISTENERS"])
        assert names == re.findall(r"(\w+)://", variables["KAFSCALE_ADVERTISED_LISTENERS"])
        here = zip(names, free_ports(len(names)), strict=True)
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in here)
        variables |= {
            "KAFSCALE_LISTENERS": listeners,
            "KAFSCALE_ADVERTISED_LISTENERS": listeners,
            "KAFSCALE_BROKER_ADDR": "",
        }
    return cluster.add(service, **variables)


def listener(process: ServiceProcess, name: str) -> str:
    """Return the address of a gateway's listener."""
    [address] = re.findall(rf"{name}://([^,]+)", process.env["KAFSCALE_LISTENERS"])
    return str(address)


@contextmanager
def etcd_member(directory: Path, environment: Mapping[str, str], data: str) -> Iterator[tuple[str, str]]:
    """Run a single etcd member with a pod's environment. Yield its client and health addresses."""
    client, peer, metrics = free_ports(3)
    moved = {_MEMBER: "127.0.0.1", "0.0.0.0": "127.0.0.1", data: str(directory)}
    moved |= {f":{port}": f":{free}" for port, free in ((2379, client), (2380, peer), (2381, metrics))}
    there = re.compile("|".join(re.escape(text) for text in moved))
    here = {name: there.sub(lambda found: moved[found[0]], value) for name, value in environment.items()}
    process = ServerProcess([str(SERVER.build())], log=directory.with_suffix(".log"), env=here)
    try:
        process.wait_for(lambda line: True if "ready to serve client requests" in line else None, timeout=60)
        yield f"127.0.0.1:{client}", f"http://127.0.0.1:{metrics}"
    finally:
        process.kill()


def snapshot(client: str) -> bytes:
    """Return the snapshot of a member that ``etcdctl snapshot save`` writes."""
    reply = httpcore.request("POST", f"http://{client}/v3/maintenance/snapshot", content=b"{}")
    assert reply.status == 200
    answers = [json.loads(line) for line in reply.content.splitlines() if line]
    return b"".join(base64.b64decode(answer["result"].get("blob", "")) for answer in answers)


def run(command: list[str], environment: Mapping[str, str]) -> str:
    """Run a command, which must succeed, and return its output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KAFSCALE_", "AWS_"))}
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def set_aside(script: Json, volume: Path) -> None:
    """Run the script that moves data aside. Check that a repetition does no harm and it never overwrites moved data."""
    command = [sys.executable, *script["command"][1:]]
    (volume / "data").mkdir()
    (volume / "data" / "variables").touch()
    for _ in range(2):
        subprocess.run(command, cwd=volume, check=True)
        assert (volume / "data.before-restore" / "variables").exists()
    (volume / "data").mkdir()
    assert subprocess.run(command, cwd=volume, check=False, capture_output=True).returncode != 0
