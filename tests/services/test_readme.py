"""The commands of README for one process and for four services, with other ports and another directory."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafscale.config.listeners import DEFAULT_ADDRESS
from kafscale.config.network import DEFAULTS
from tests.servers.ports import free_ports
from tests.servers.tools import tool

ROOT = Path(__file__).parents[2]
HEADING = "## Start four services"
DIRECTORY = "/tmp/kafscale"
LONG = 90.0


def _commands(heading: str = HEADING) -> list[str]:
    """Return the commands of a section."""
    section = (ROOT / "README.md").read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^    (.+)$", section, re.MULTILINE)


def _here(directory: Path) -> Callable[[str], str]:
    """Return a function that gives a command free ports, also in place of default ports that it does not name."""
    text = (ROOT / "README.md").read_text()
    defaults = [DEFAULT_ADDRESS, *(str(address) for each in DEFAULTS.values() for address in (each.rpc, each.http))]
    ports = {*re.findall(r"127\.0\.0\.1:([0-9]+)", text), *(address.rpartition(":")[2] for address in defaults)}
    moved = dict(zip(sorted(ports), map(str, free_ports(len(ports))), strict=True))

    def here(command: str) -> str:
        service = command.rpartition("services.")[2]
        if service in DEFAULTS and "KAFSCALE_RPC_ADDR" not in command:
            addresses = DEFAULTS[service]
            command = f"KAFSCALE_RPC_ADDR={addresses.rpc} KAFSCALE_HTTP_ADDR={addresses.http} {command}"
            if service == "gateway":
                command = f"KAFSCALE_BROKER_ADDR={DEFAULT_ADDRESS} {command}"
        if command.startswith(".venv/bin/kafscale"):
            command = f"KAFSCALE_ADMIN_SERVER={DEFAULTS['gateway'].rpc} {command}"
        command = re.sub(r"(?<=127\.0\.0\.1:)[0-9]+", lambda found: moved[found[0]], command)
        return command.replace(DIRECTORY, str(directory)).replace(".venv/bin", str(Path(sys.executable).parent))

    return here


@contextmanager
def _running(command: str, log: Path, settings: Path | None = None) -> Iterator[None]:
    """Run a command as in a terminal. SIGTERM must end it with status 0."""
    before = "" if settings is None else f"source {settings} && "
    # The command may begin with settings, which `exec` would read as the program's name.
    shell = ["bash", "-c", f"{before}exec env {command}"]
    with log.open("wb") as output:
        process = subprocess.Popen(shell, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def _await(there: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONG
    while not there():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_the_readme_starts_one_process(tmp_path: Path) -> None:
    run, *others = _commands("## Start")
    assert run == "make run"
    broker, rpc, http, console = (f"127.0.0.1:{port}" for port in free_ports(4))
    programs = Path(sys.executable).parent
    addresses = f"KAFSCALE_BROKER_ADDR={broker} KAFSCALE_RPC_ADDR={rpc} KAFSCALE_HTTP_ADDR={http}"
    addresses += f" KAFSCALE_CONSOLE_ADDR={console}"
    log = tmp_path / "run.log"
    printed = ""
    with _running(f"{addresses} KAFSCALE_DATA_DIR={tmp_path / 'data'} {programs}/kafscale run", log):
        _await(lambda: '"event": "serving"' in log.read_text(), f"{log}")
        for command in others:
            shell = ["bash", "-c", command.replace(".venv/bin/", f"KAFSCALE_ADMIN_SERVER={rpc} {programs}/")]
            printed += subprocess.run(shell, check=True, timeout=LONG, stdout=subprocess.PIPE, text=True).stdout
    assert printed.endswith("\nhello\n")


def test_the_readme_starts_the_four_services(tmp_path: Path) -> None:
    tool("kcat", "kcat")
    commands = _commands()
    [stores] = [command for command in commands if "tests.servers.stores" in command]
    services = [command for command in commands if "-m services." in command]
    others = [command for command in commands if command not in (stores, *services)]
    printed = {}
    here = _here(tmp_path / "stores")
    with ExitStack() as running:
        running.enter_context(_running(here(stores), tmp_path / "stores.log"))
        settings = tmp_path / "stores" / "settings.env"
        _await(settings.exists, f"etcd and MinIO: {tmp_path / 'stores.log'}")
        logs = [tmp_path / f"{number}.log" for number in range(len(services))]
        for command, log in zip(services, logs, strict=True):
            running.enter_context(_running(here(command), log, settings))
        for log in logs:
            _await(lambda log=log: '"event": "serving"' in log.read_text(), f"{log}: {log.read_text()}")  # type: ignore[misc]
        for command in others:
            shell = ["bash", "-c", here(command)]
            printed[command] = subprocess.run(shell, check=True, timeout=LONG, stdout=subprocess.PIPE, text=True).stdout
    [consumed] = [text for command, text in printed.items() if command.startswith("kcat -C")]
    assert consumed == "hello\n"
    [listed] = [text for command, text in printed.items() if "kafscale partition list" in command]
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["greetings", "0"]]
    assert {command.rpartition(".")[2] for command in services} == set(DEFAULTS)
