"""Apache Kafka as one process, broker and controller, from the jars of ``apache/pom.xml``."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.java import classpath
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess

AGAINST_APACHE = os.environ.get("KAFSCALE_TEST_AGAINST") == "apache"
"""Whether the tests of clients run against Apache Kafka instead of KafScale, to check the tests."""

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={directory}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
file.delete.delay.ms=1000
"""


class ApacheKafka:
    """The address of a running broker, and its process for measurements."""

    def __init__(self, bootstrap: str, process: ServerProcess) -> None:
        self.bootstrap = bootstrap
        self.process = process


SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""JVM options for a fast start instead of high throughput."""


def java(main: str, *arguments: str, heap: str = "256m", options: Sequence[str] = ()) -> list[str]:
    """Return the command line that runs a class from Apache Kafka's jars."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", f"-Xmx{heap}", *options, quiet, "-cp", classpath("apache"), main, *arguments]


@contextmanager
def apache_kafka(directory: Path, *, heap: str = "1g", properties: Sequence[str] = ()) -> Iterator[ApacheKafka]:
    """Start a new broker with its log under ``directory``. ``properties`` are more lines for its server.properties."""
    directory.mkdir(parents=True, exist_ok=True)
    port, controller = free_ports(2)
    settings = directory / "server.properties"
    text = _PROPERTIES.format(port=port, controller=controller, directory=directory)
    settings.write_text(text + "".join(f"{line}\n" for line in properties))
    format_log = java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings))
    subprocess.run(format_log, check=True, capture_output=True)
    broker = [
        "java",
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        classpath("apache"),
        "kafka.Kafka",
        str(settings),
    ]
    with ServerProcess(broker, log=directory / "broker.log") as process:
        process.wait_for(lambda line: True if "Kafka Server started" in line else None, timeout=60)
        yield ApacheKafka(f"127.0.0.1:{port}", process)
