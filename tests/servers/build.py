"""Build the servers and clients for the tests that are not in the cache yet.

``python -m tests.servers.build`` builds those of ``make test``; ``all`` adds those of ``make test-all``. If a program
is missing, what needs it is skipped with a line that names the Debian package. With ``CI=true`` that is an error.
"""

import sys
from collections.abc import Callable

from tests.servers import docker, etcd, kubernetes, minio
from tests.servers.java import PROJECTS
from tests.servers.java import build as build_java
from tests.servers.promtool import promtool
from tests.servers.python_env import frameworks_python
from tests.servers.spark import build as build_spark
from tests.servers.tools import ToolMissing, tool
from tests.support.clients.programs import build as build_drivers
from tests.support.installed import requirements

_OF_TEST: dict[str, Callable[[], object]] = {
    "MinIO": minio.SERVER.build,
    "etcd": etcd.SERVER.build,
    "promtool": promtool,
    "the Java client": lambda: build_java("client"),
    "kcat": lambda: tool("kcat", "kcat"),
    "KafScale's requirements": requirements,
}
_OF_ALL: dict[str, Callable[[], object]] = {
    **_OF_TEST,
    "systemd-analyze": lambda: tool("systemd-analyze", "systemd"),
    "Kubernetes": kubernetes.build,
    "Apache Kafka and its tools": lambda: [build_java(project) for project in PROJECTS],
    "KafkaJS and franz-go": build_drivers,
    "Faust and Quix Streams": frameworks_python,
    "Spark": build_spark,
    "container images": docker.build,
}


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["all"]):
        raise SystemExit("usage: python -m tests.servers.build [all]")
    for name, build in (_OF_ALL if arguments else _OF_TEST).items():
        try:
            build()
        except ToolMissing as reason:
            print(f"skipped {name}: {reason}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
