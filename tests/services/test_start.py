"""A process that cannot start ends with one line that names the reason."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from kafscale_tools.cli.exits import Exit
from tests.servers.cluster import ServiceProcess
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.services.conftest import MakeCluster
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message
from tests.support.shell import Shell, once

SERVICES = ("gateway", "storage", "indexer", "coordinator")
NOBODY = "127.0.0.1:1"
TLS_CA, TLS_CERT, TLS_KEY = (f"KAFSCALE_RPC_TLS_{name}_FILE" for name in ("CA", "CERT", "KEY"))


def _own_ports() -> dict[str, str]:
    rpc, http, kafka, console = (f"127.0.0.1:{port}" for port in free_ports(4))
    return {
        "KAFSCALE_RPC_ADDR": rpc,
        "KAFSCALE_HTTP_ADDR": http,
        "KAFSCALE_BROKER_ADDR": kafka,
        "KAFSCALE_CONSOLE_ADDR": console,
    }


def _start(service: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a service that should end without a signal."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KAFSCALE_", "AWS_"))}
    command = [sys.executable, "-m", f"services.{service}"]
    return subprocess.run(
        command, env={**inherited, **_own_ports(), **env}, capture_output=True, text=True, timeout=60, check=False
    )


def _message(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line for the operator; all others are log entries."""
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.stdout == ""
    return line


@pytest.fixture
def settings(etcd: Etcd, minio: Minio) -> dict[str, str]:
    """Settings with which every service starts."""
    return {**minio.broker_settings(), "KAFSCALE_ETCD_ENDPOINTS": etcd.endpoints[0]}


@pytest.mark.parametrize(
    ("service", "wrong", "named"),
    [
        *((service, {"KAFSCALE_ETCD_ENDPOINTS": ""}, "KAFSCALE_ETCD_ENDPOINTS") for service in SERVICES),
        *((service, {"KAFSCALE_S3_BUCKET": ""}, "KAFSCALE_S3_BUCKET") for service in ("storage", "indexer")),
        ("storage", {"KAFSCALE_RPC_ADDR": "0.0.0.0:0"}, "KAFSCALE_RPC_ADVERTISED_ADDR"),
        ("indexer", {"KAFSCALE_RPC_ADDR": "192.0.2.1:0"}, "KAFSCALE_RPC_ADDR: .*annot assign requested address"),
        ("coordinator", {"KAFSCALE_HTTP_ADDR": "192.0.2.1:0"}, "KAFSCALE_HTTP_ADDR"),
        ("gateway", {TLS_CA: "no-such-file.pem"}, TLS_CERT),
        ("storage", {"KAFSCALE_S3_SECRET_KEY": "wrong"}, "KAFSCALE_S3_SECRET_KEY"),
        ("storage", {"KAFSCALE_S3_CREDENTIALS": "aws"}, "KAFSCALE_S3_CREDENTIALS"),
        ("indexer", {"KAFSCALE_S3_BUCKET": "no-such-bucket"}, "KAFSCALE_S3_BUCKET"),
        ("gateway", {"KAFSCALE_BROKER_ADDR": "192.0.2.1:9092"}, "192.0.2.1:9092"),
        ("coordinator", {"KAFSCALE_LEASE_TTL_SECONDS": "1"}, "KAFSCALE_LEASE_TTL_SECONDS"),
        (
            "coordinator",
            {"KAFSCALE_RPC_ADDR": "x", "KAFSCALE_ETCD_TIMEOUT_MS": "-1"},
            "KAFSCALE_RPC_ADDR = 'x' is not .*; KAFSCALE_ETCD_TIMEOUT_MS = '-1' is not ",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_setting_ends_the_process_with_status_2_and_one_line_that_names_it(
    settings: dict[str, str], service: str, wrong: dict[str, str], named: str
) -> None:
    done = _start(service, {**settings, **wrong})
    assert done.returncode == 2, done.stderr
    assert re.search(named, _message(done)), done.stderr


def test_an_address_in_use_is_named(settings: dict[str, str], make_cluster: MakeCluster) -> None:
    with make_cluster(gateways=0, storages=0, indexers=0) as cluster:
        [coordinator] = cluster.coordinators
        done = _start("coordinator", {**settings, "KAFSCALE_RPC_ADDR": coordinator.address})
        assert done.returncode == 2, done.stderr
        assert re.search("KAFSCALE_RPC_ADDR: .*Address already in use", _message(done))


def test_a_process_without_etcd_or_s3_waits_and_then_ends_with_status_1(settings: dict[str, str]) -> None:
    no_etcd = {"KAFSCALE_ETCD_ENDPOINTS": NOBODY, "KAFSCALE_ETCD_TIMEOUT_MS": "500"}
    no_s3 = {"KAFSCALE_S3_ENDPOINT": f"http://{NOBODY}"}
    cases = [("gateway", no_etcd, "etcd"), ("storage", no_s3, "KAFSCALE_S3_ENDPOINT")]

    def run(case: tuple[str, dict[str, str], str]) -> tuple[float, subprocess.CompletedProcess[str]]:
        began = time.monotonic()
        done = _start(case[0], {**settings, **case[1], "KAFSCALE_START_PATIENCE_MS": "4000"})
        return time.monotonic() - began, done

    with ThreadPoolExecutor(2) as threads:
        for (service, _, named), (seconds, done) in zip(cases, threads.map(run, cases), strict=True):
            assert done.returncode == 1, (service, done.stderr)
            assert named in _message(done), service
            assert seconds > 3, service


@pytest.mark.parametrize("service", ["coordinator", "storage"])
def test_sigterm_ends_a_process_that_waits_for_etcd(settings: dict[str, str], tmp_path: Path, service: str) -> None:
    process = ServiceProcess(service, 0, tmp_path, {**settings, **_own_ports(), "KAFSCALE_ETCD_ENDPOINTS": NOBODY})
    process.start()
    process.process.wait_for(lambda line: True if "waiting for etcd" in line else None, timeout=60)
    began = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - began < 8


def test_the_one_process_mode_warns_about_settings_that_only_separate_services_read(tmp_path: Path) -> None:
    env = {"KAFSCALE_DATA_DIR": str(tmp_path / "data"), "KAFSCALE_ETCD_ENDPOINTS": NOBODY, **_own_ports()}
    command = [sys.executable, "-c", "from kafscale_tools.cli.main import main; main()", "run"]
    with ServerProcess(command, log=tmp_path / "log", env=env) as process:
        process.wait_for(
            lambda line: True if "KAFSCALE_ETCD_ENDPOINTS is set, but not used" in line else None, timeout=60
        )


def test_the_one_process_mode_serves_the_command(tmp_path: Path) -> None:
    ports = _own_ports()
    command = [sys.executable, "-c", "from kafscale_tools.cli.main import main; main()", "run"]
    shell = Shell({}, f"{NOBODY},{ports['KAFSCALE_RPC_ADDR']}")
    with ServerProcess(
        command, log=tmp_path / "log", env={"KAFSCALE_DATA_DIR": str(tmp_path / "data"), **ports}
    ) as process:
        process.wait_for(lambda line: True if "serving" in line else None, timeout=60)
        assert shell.run("topic create hello --partitions 2").returncode == 0
        assert ConfluentClient(ports["KAFSCALE_BROKER_ADDR"]).produce("hello", [Message(b"a")]) == [0]
        assert [row[:2] + row[-3:] for row in shell.rows("partition list")][1] == ["hello", "1", "0", "0", "0"]
        members = shell.json("cluster")["members"]
        assert [(each["service"], each["address"], each["health"]) for each in members] == [
            (service, "", "READY") for service in ("coordinator", "gateway", "storage")
        ]
        assert process.stop(timeout=60) == 0


def test_only_variables_that_no_service_reads_cause_a_warning(make_cluster: MakeCluster) -> None:
    env = {"KAFSCALE_SEGMENT_BYTES": "4MB", "KAFSCALE_SEGMENT_BYTE": "4MB"}
    with make_cluster(gateways=0, storages=0, indexers=0, env=env) as cluster:
        log = cluster.coordinators[0].log.read_text().splitlines()
        events = [entry["event"] for entry in map(json.loads, log)]
        assert [event for event in events if "not used" in event] == [
            "KAFSCALE_SEGMENT_BYTE is set, but not used; did you mean KAFSCALE_SEGMENT_BYTES?"
        ]


def test_the_four_services_use_mutual_tls(make_cluster: MakeCluster, tmp_path: Path) -> None:
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    files = {TLS_CA: tmp_path / "ca.pem", TLS_CERT: tmp_path / "cert.pem", TLS_KEY: tmp_path / "key.pem"}
    ca.cert_pem.write_to_path(files[TLS_CA])
    issued.cert_chain_pems[0].write_to_path(files[TLS_CERT])
    issued.private_key_pem.write_to_path(files[TLS_KEY])
    tls = {name: str(path) for name, path in files.items()} | {"KAFSCALE_RPC_TLS_CLIENT_AUTH": "required"}
    with make_cluster(env=tls) as cluster:
        client = ConfluentClient(cluster.bootstrap)
        client.create_topic("encrypted")
        assert client.produce("encrypted", [Message(b"a"), Message(b"b")]) == [0, 1]
        assert [record.value for record in client.consume("encrypted", count=2)] == [b"a", b"b"]
        [storage] = cluster.storages
        assert storage.events("no indexer answered, storing indexes") == []
        [gateway] = cluster.gateways
        shell = Shell(tls, gateway.address)
        assert [row[0] for row in shell.rows("topic list")] == ["encrypted"]
        once(
            "all are reached by TLS",
            lambda: shell.json("cluster")["members"],
            lambda members: {member["health"] for member in members} == {"READY"},
        )
        plain = shell.run("topic list --timeout 20", **dict.fromkeys(tls, ""))
        uncertified = shell.run(
            "topic list --timeout 20", **{TLS_CERT: "", TLS_KEY: ""}, KAFSCALE_RPC_TLS_CLIENT_AUTH=""
        )
        assert plain.returncode == uncertified.returncode == Exit.UNAVAILABLE
