"""A Spark standalone cluster: a master and workers as processes on loopback."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.support.spark.session import QUICK_JAVA, require_java, settings

SPARK_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Standalone:
    """A running cluster. ``directory``: its logs and the work directories of its executors."""

    url: str
    directory: Path
    master: ServerProcess
    workers: Sequence[ServerProcess]

    def submit(
        self,
        program: Path,
        *arguments: str,
        options: Sequence[str] = (),
        conf: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> str:
        """Run ``spark-submit`` and return the program's output. ``python``: for driver and executors.

        It runs outside the tree, so imported packages must be shipped or installed.
        """
        scratch = self.directory / "driver"
        scratch.mkdir(exist_ok=True)
        own = {"spark.executor.memory": "512m", "spark.executor.cores": "1", **settings(scratch), **(conf or {})}
        pairs = [word for name, value in own.items() for word in ("--conf", f"{name}={value}")]
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, *options, *pairs]
        done = subprocess.run(
            [*command, str(program), *arguments],
            cwd=scratch,
            env=_environment(python or Path(sys.executable)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            self.show_logs()
            raise RuntimeError(f"spark-submit ended with status {done.returncode}; it printed: {done.stdout}")
        return done.stdout

    def show_logs(self) -> None:
        """Print the executors' logs on standard output, which pytest shows for failed tests."""
        for log in sorted(self.directory.glob("work-*/*/*/stderr")):
            print(f"--- {log}", *log.read_text(errors="replace").splitlines()[-40:], sep="\n")


@contextmanager
def standalone_cluster(directory: Path, *, workers: int = 2) -> Iterator[Standalone]:
    """Start a cluster and wait until every worker is registered. At the end no process remains, executors included."""
    require_java()
    port, *web = free_ports(2 + workers)
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        where = "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web[0])
        master = stack.enter_context(_daemon(directory / "master.log", f"{_DEPLOY}.master.Master", *where))
        master.wait_for(lambda line: True if "New state: ALIVE" in line else None, timeout=_START_SECONDS)
        running = []
        for number, web_port in enumerate(web[1:]):
            # Spark runs speculative tasks only on another host; these names make two.
            host = "127.0.0.1" if number % 2 else "localhost"
            arguments = "--host", host, "--webui-port", str(web_port), "--cores", "1", "--memory", "1g"
            work = str(directory / f"work-{number}")
            worker = _daemon(
                directory / f"worker-{number}.log", f"{_DEPLOY}.worker.Worker", *arguments, "-d", work, url
            )
            running.append(stack.enter_context(worker))
        for process in running:
            process.wait_for(
                lambda line: True if "Successfully registered with master" in line else None, timeout=_START_SECONDS
            )
        yield Standalone(url, directory, master, running)


@contextmanager
def _daemon(log: Path, main: str, *arguments: str) -> Iterator[ServerProcess]:
    env = {
        **_environment(Path(sys.executable)),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JAVA} -Dspark.master.rest.enabled=false",
    }
    process = ServerProcess([str(SPARK_HOME / "bin" / "spark-class"), main, *arguments], log=log, env=env)
    try:
        yield process
    finally:
        # A worker stops its executors when it ends. Remaining executors are killed here.
        executors = children(process.pid)
        if process.status is None:
            process.stop()
        end(executors)


def _environment(python: Path) -> dict[str, str]:
    # Without this process's Python path, so that only shipped packages are found.
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    return {**outer, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}


def children(pid: int) -> list[int]:
    """Return the running child processes of all threads of ``pid``."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for children in lists for child in children.read_text().split()]


def end(pids: Sequence[int], *, timeout: float = 20.0) -> list[int]:
    """Wait until none of them runs. Kill the others and return them."""
    deadline = time.monotonic() + timeout
    while (left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left
