"""Build the servers and clients for the tests that are not in the cache yet.

``python -m tests.servers.build`` builds those of ``make test``; ``all`` adds those of ``make test-all``. If a program
is missing, what needs it is skipped with a line that names the Debian package. With ``CI=true`` that is an error.
"""

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tests.servers import docker, etcd, kubernetes, minio
from tests.servers.java import PROJECTS
from tests.servers.java import build as build_java
from tests.servers.promtool import promtool
from tests.servers.python_env import frameworks_python
from tests.servers.spark import build as build_spark
from tests.servers.tools import ToolMissing, tool
from tests.support.clients.programs import build as build_drivers
from tests.support.installed import requirements

_Builds = Mapping[str, Callable[[], object]]

# Go compiles for many minutes. Beside it, the others download.
_OF_TEST: tuple[_Builds, _Builds] = (
    {
        "MinIO": minio.SERVER.build,
        "etcd": etcd.SERVER.build,
        "promtool": promtool,
    },
    {
        "the Java client": lambda: build_java("client"),
        "kcat": lambda: tool("kcat", "kcat"),
        "KafScale's requirements": requirements,
    },
)
_OF_ALL: tuple[_Builds, _Builds] = (
    {
        **_OF_TEST[0],
        "Kubernetes": kubernetes.build,
    },
    {
        **_OF_TEST[1],
        "Chromium": lambda: tool("chromium", "chromium"),
        "systemd-analyze": lambda: tool("systemd-analyze", "systemd"),
        "Apache Kafka and its tools": lambda: [build_java(project) for project in PROJECTS],
        "KafkaJS and franz-go": build_drivers,
        "Faust and Quix Streams": frameworks_python,
        "Spark": build_spark,
        "container images": docker.build,
    },
)


def _build(builds: _Builds) -> None:
    for name, build in builds.items():
        try:
            build()
        except ToolMissing as reason:
            print(f"skipped {name}: {reason}", flush=True)


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["all"]):
        raise SystemExit("usage: python -m tests.servers.build [all]")
    with ThreadPoolExecutor() as pool:
        list(pool.map(_build, _OF_ALL if arguments else _OF_TEST))


if __name__ == "__main__":
    main(sys.argv[1:])
