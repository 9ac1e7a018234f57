"""The units of docs/systemd/ as systemd reads them, and the services and etcd with their environment files."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpcore
import pytest

from kafscale.config.network import DEFAULTS, HTTP_DEFAULTS, HttpSettings, NetworkSettings
from kafscale.config.settings import documented
from kafscale.process.process import LAST_SECONDS, Loaded
from kafscale.process.startup import check_shared
from services.console import __main__ as console
from services.console.settings import ConsoleSettings
from services.coordinator import __main__ as coordinator
from services.gateway import __main__ as gateway
from services.indexer import __main__ as indexer
from services.storage import __main__ as storage
from tests.servers.cluster import running_cluster
from tests.servers.etcd import SERVER, Etcd
from tests.servers.minio import Minio
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.servers.tools import tool
from tests.support.k8s import processes
from tests.support.shell import once

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "docs" / "systemd"
PROCESSES = {"coordinator": coordinator, "indexer": indexer, "storage": storage, "gateway": gateway}


def _option(unit: str, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.+)$", (UNITS / unit).read_text(), re.MULTILINE)


def _environment(unit: str, instance: str = "") -> dict[str, str]:
    """Return the variables of the unit's environment files. Their values need no quoting."""
    made = {}
    for path in _option(unit, "EnvironmentFile"):
        for line in (UNITS / Path(path.replace("%i", instance)).name).read_text().splitlines():
            match = re.fullmatch(r"(\w+)=([\w:/.,={}-]+)", line)
            assert match is not None, line
            assert match[1] not in made
            made[match[1]] = match[2]
    return made


def _moved(text: str, places: Mapping[str, str]) -> str:
    return re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], text)


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    shutil.copytree(UNITS, tmp_path, dirs_exist_ok=True)
    for unit in tmp_path.glob("*.service"):
        # systemd checks that the program exists.
        unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE))
    units = [tmp_path / f"kafscale@{service}.service" for service in PROCESSES]
    for unit in units:
        shutil.copy(tmp_path / "kafscale@.service", unit)
    units.append(tmp_path / "etcd.service")
    command = [tool("systemd-analyze", "systemd"), "verify", "--man=no", *map(str, units)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("service", PROCESSES)
def test_every_variable_in_an_environment_file_is_a_setting_of_the_process(service: str) -> None:
    made = _environment("kafscale@.service", service)
    read = {declared.env for _, found in documented(PROCESSES[service].SETTINGS) for declared in found}
    assert made.keys() <= read
    settings = Loaded(PROCESSES[service].SETTINGS, made)
    check_shared(settings)
    # Services on one machine have different, documented ports, reachable from other machines.
    network, default = settings[NetworkSettings], DEFAULTS[service]
    assert network.rpc(service).anywhere
    assert network.rpc(service).port == default.rpc.port
    assert network.advertised(service, default.rpc.port).rpartition(":")[2] == str(default.rpc.port)
    assert settings[HttpSettings].address(service).port == default.http.port
    # systemd must wait longer than a process takes to stop.
    [seconds] = _option("kafscale@.service", "TimeoutStopSec")
    assert PROCESSES[service].grace_ms(settings) / 1000 + LAST_SECONDS < int(seconds)


def test_the_console_asks_the_gateway_of_its_machine_and_serves_browsers_of_it() -> None:
    made = _environment("kafscale@.service", "console")
    settings = Loaded(console.SETTINGS, made)
    own = settings[ConsoleSettings]
    assert own.admin_servers == (f"localhost:{DEFAULTS['gateway'].rpc.port}",)
    assert (own.console_addr, own.signs_in) == (ConsoleSettings().console_addr, False)
    assert settings[HttpSettings].address("console").port == HTTP_DEFAULTS["console"].port


def test_services_start_and_stop_with_these_files(etcd: Etcd, minio: Minio, tmp_path: Path) -> None:
    assert _option("kafscale@.service", "ExecStart") == ["/opt/kafscale/bin/python -m services.%i"]
    with running_cluster(
        tmp_path, gateways=0, storages=0, indexers=0, coordinators=0, etcd=etcd, minio=minio
    ) as cluster:
        for service in PROCESSES:
            process = processes.add(cluster, service, _environment("kafscale@.service", service))
            process.start()
        for process in cluster.processes:
            process.await_ready()
        assert [process.stop() for process in reversed(cluster.processes)] == [0] * len(PROCESSES)


class _EtcdMember:
    """A member of etcd, with the unit's environment file of its machine."""

    def __init__(self, name: str, directory: Path, moved: Mapping[str, str]) -> None:
        self.name = name
        self.client, self.peer = moved[f"{name}.internal:2379"], moved[f"{name}.internal:2380"]
        [metrics] = free_ports(1)
        self._health = f"http://127.0.0.1:{metrics}/readyz"
        self._data = directory / name
        places = {
            **moved,
            "0.0.0.0:2379": self.client,
            "0.0.0.0:2380": self.peer,
            "0.0.0.0:2381": f"127.0.0.1:{metrics}",
            "/var/lib/etcd/data": str(self._data),
        }
        example = _environment("etcd.service")
        here = {variable: value.replace("etcd-1", name) for variable, value in example.items()}
        here["ETCD_INITIAL_CLUSTER"] = example["ETCD_INITIAL_CLUSTER"]
        self._env = {variable: _moved(value, places) for variable, value in here.items()}
        self.process: ServerProcess

    def start(self, **env: str) -> None:
        self.process = ServerProcess(
            [str(SERVER.build())], log=self._data.with_suffix(".log"), env={**self._env, **env}
        )

    def await_ready(self) -> None:
        self.process.wait_for(lambda line: True if "ready to serve client requests" in line else None, timeout=60)
        assert httpcore.request("GET", self._health).status == 200
        assert "unrecognized environment variable" not in self.process.log.read_text()

    def end(self) -> None:
        self.process.kill()

    def lose(self) -> None:
        self.process.kill()
        shutil.rmtree(self._data)

    def ask(self, what: str, **fields: object) -> Any:
        """Ask as etcdctl does, in JSON and with its timeout. A refused or unanswered request has a ``message``."""
        url, limit = f"http://{self.client}/v3/{what}", {"timeout": {"read": 5.0}}
        try:
            reply = httpcore.request("POST", url, content=json.dumps(fields).encode(), extensions=limit)
        except httpcore.ReadTimeout:
            return {"message": "no answer"}
        return json.loads(reply.content)


def _done(reply: dict[str, Any]) -> bool:
    return "message" not in reply


def _done_or_gone(reply: dict[str, Any]) -> bool:
    return _done(reply) or "member not found" in reply["message"]


def _done_or_there(reply: dict[str, Any]) -> bool:
    return _done(reply) or "Peer URLs already exists" in reply["message"]


def test_three_etcd_members_form_a_cluster_and_replace_a_lost_member(tmp_path: Path) -> None:
    names = re.findall(r"(etcd-\d)=", _environment("etcd.service")["ETCD_INITIAL_CLUSTER"])
    assert len(names) == 3
    places = [f"{name}.internal:{port}" for name in names for port in (2379, 2380)]
    moved = {place: f"127.0.0.1:{port}" for place, port in zip(places, free_ports(len(places)), strict=True)}
    first, lost, last = (_EtcdMember(name, tmp_path, moved) for name in names)
    with ExitStack() as stack:
        for member in (first, lost, last):
            member.start()
            stack.callback(member.end)
        for member in (first, lost, last):
            member.await_ready()
        key = base64.b64encode(b"kept").decode()
        once("a put", lambda: first.ask("kv/put", key=key, value=key), _done)

        lost.lose()
        listed = once("a list", lambda: first.ask("cluster/member/list"), _done)
        [former] = [each["ID"] for each in listed["members"] if each["name"] == lost.name]
        # If the lost member was the leader, a request before the next election may be lost, or done and not answered.
        once("it is removed", lambda: first.ask("cluster/member/remove", ID=former), _done_or_gone)
        again = {"peerURLs": [f"http://{lost.peer}"]}
        # etcd refuses this for five seconds after a connection between members has ended.
        once("it is added", lambda: first.ask("cluster/member/add", **again), _done_or_there)
        lost.start(ETCD_INITIAL_CLUSTER_STATE="existing")
        lost.await_ready()
        assert lost.ask("kv/range", key=key)["kvs"][0]["value"] == key
        lost.process.stop()
        # The member now has data, so the variable has no effect.
        lost.start(ETCD_INITIAL_CLUSTER_STATE="existing")
        lost.await_ready()
        assert [each.process.status for each in (first, last)] == [None, None]
