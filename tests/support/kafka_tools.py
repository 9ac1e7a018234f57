"""Kafka's command line tools, which run in one JVM (``ToolRunner`` of tests/java/apache), and their parsed tables."""

import contextlib
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from tests.servers.apache_kafka import SHORT_LIVED, java

TOOLS = "org.apache.kafka.tools"
MAINS = {
    "kafka-acls": f"{TOOLS}.AclCommand",
    "kafka-broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{TOOLS}.ClientMetricsCommand",
    "kafka-cluster": f"{TOOLS}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{TOOLS}.ConsumerPerformance",
    "kafka-delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "kafka-features": f"{TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{TOOLS}.GetOffsetShell",
    "kafka-leader-election": f"{TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{TOOLS}.ProducerPerformance",
    "kafka-reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-streams-application-reset": f"{TOOLS}.StreamsResetter",
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-transactions": f"{TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{TOOLS}.VerifiableProducer",
}
"""The class behind each script in Kafka's ``bin`` directory."""

_ADDRESS_FIRST = ("kafka-features", "kafka-metadata-quorum", "kafka-transactions")
"""Tools that take the address before their command."""

SECONDS = 60
"""The time limit of a tool."""

Row = dict[str, str]


@dataclass(frozen=True)
class Printed:
    """The exit status and output of a tool."""

    status: int
    out: str
    err: str

    def rows(self) -> list[Row]:
        """Return the printed table as rows by heading. The only heading with a space loses its second word."""
        lines = self.out.replace("COORDINATOR (ID)", "COORDINATOR ID").splitlines()
        heads = [number for number, line in enumerate(lines) if line.startswith(("GROUP ", "TOPIC ", "ID "))]
        rows: list[Row] = []
        for head in heads:
            names = lines[head].split()
            for line in lines[head + 1 :]:
                if not line:
                    break
                rows.append(dict(zip(names, line.rstrip().split(maxsplit=len(names) - 1), strict=True)))
        return rows


class KafkaTools:
    """Runs one tool at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        command = java("kafscale.tools.ToolRunner", options=SHORT_LIVED)
        self._jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def run(self, tool: str, *arguments: object, stdin: str = "", status: int = 0) -> Printed:
        """Run a tool on the cluster. Any exit status except ``status`` is a failure."""
        words, address = [*map(str, arguments)], ["--bootstrap-server", self._bootstrap]
        ordered = [*address, *words] if tool in _ADDRESS_FIRST else [*words, *address]
        return self.run_plain(tool, *ordered, stdin=stdin, status=status)

    def run_plain(self, tool: str, *arguments: str, stdin: str = "", status: int = 0) -> Printed:
        """Run a tool with only these arguments."""
        command = {"main": MAINS[tool], "arguments": arguments, "stdin": stdin, "seconds": SECONDS}
        # Kill a JVM that does not answer, which also ends the read of its answer.
        watchdog = threading.Timer(2 * SECONDS, self._jvm.kill)
        watchdog.start()
        try:
            if self._jvm.stdin is None or self._jvm.stdout is None:
                raise RuntimeError("the JVM was started without pipes")
            self._jvm.stdin.write(json.dumps(command).encode() + b"\n")
            self._jvm.stdin.flush()
            printed = Printed(**json.loads(self._jvm.stdout.readline()))
        finally:
            watchdog.cancel()
        assert printed.status == status, f"{tool} {' '.join(arguments)}: {printed.status}\n{printed.out}\n{printed.err}"
        return printed

    def close(self) -> None:
        self._jvm.communicate(timeout=SECONDS)


@contextlib.contextmanager
def kafka_tools(bootstrap: str) -> Iterator[KafkaTools]:
    tools = KafkaTools(bootstrap)
    try:
        yield tools
    finally:
        tools.close()


def fields(line: str) -> Row:
    """Parse a line of "Name: value" pairs separated by tabs."""
    return dict(re.findall(r"(\S+): ([^\t]*)", line))
