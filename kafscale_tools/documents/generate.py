"""Writes the documents that are generated from code. Run it with ``make generate``.

``--check`` compares the documents instead, and exits with status 1 and a diff if they differ.
"""

import difflib
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from kafscale.config.admin_access import AdminClientSettings, AdminTokenSettings
from kafscale.config.backup_bucket import BackupSettings
from kafscale.config.calls import RpcSettings
from kafscale.config.etcd import EtcdSettings
from kafscale.config.group_limits import GroupSettings
from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.config.network import HttpSettings, LeaseSettings, NetworkSettings
from kafscale.config.settings import Setting, documented
from kafscale.config.stores import NamespaceSettings, S3Settings
from kafscale.metadata.etcd_space import EtcdSpace
from kafscale.metadata.observed import MetadataHealth
from kafscale.objects.availability import StoreHealth, Thresholds
from kafscale.objects.metrics import OperationCounters
from kafscale.process.health import Health, HealthSettings
from kafscale.process.logging import LogSettings
from kafscale.process.metrics import Described, standard_metrics
from kafscale.process.operations import lease_families
from kafscale.process.process_metrics import EventLoop, process_families
from kafscale.process.tracing import TracingSettings
from kafscale.rpc.counters import CallCounters
from kafscale.rpc.pool import pool_families
from kafscale.telemetry import Family
from kafscale.topics.definitions import DEFINITIONS
from kafscale_tools.cli.admin.server import SETTINGS as ASKING
from kafscale_tools.documents import access, group_protocol, protocol
from services.all_in_one import main as all_in_one
from services.all_in_one.settings import OneProcessSettings
from services.console import __main__ as console
from services.console import monitoring as console_monitoring
from services.console.records.settings import RecordsSettings
from services.console.settings import ConsoleSettings
from services.coordinator import __main__ as coordinator
from services.coordinator import monitoring as coordinator_monitoring
from services.coordinator.counters import CoordinatorCounters
from services.coordinator.settings import CoordinatorSettings
from services.gateway import __main__ as gateway
from services.gateway import monitoring as gateway_monitoring
from services.gateway.counters import GatewayCounters
from services.gateway.settings import GatewaySettings
from services.gateway.topics.configs import BROKER_CONFIGS
from services.indexer import __main__ as indexer
from services.indexer import monitoring as indexer_monitoring
from services.indexer.counters import IndexerCounters
from services.indexer.settings import IndexerSettings
from services.operator import __main__ as operator
from services.operator import monitoring as operator_monitoring
from services.operator.counters import OperatorCounters
from services.operator.settings import OperatorSettings
from services.storage import __main__ as storage
from services.storage import monitoring as storage_monitoring
from services.storage.counters import StorageCounters
from services.storage.settings import StorageSettings

SETTINGS: dict[str, type] = {
    "Gateway": GatewaySettings,
    "Storage": StorageSettings,
    "Indexer": IndexerSettings,
    "Coordinator": CoordinatorSettings,
    "Consumer groups": GroupSettings,
    "Object storage": S3Settings,
    "Backup storage": BackupSettings,
    "Namespace": NamespaceSettings,
    "Leases": LeaseSettings,
    "Service addresses": NetworkSettings,
    "Calls between services": RpcSettings,
    "etcd": EtcdSettings,
    "Admin token": AdminTokenSettings,
    "The `kafscale` command": AdminClientSettings,
    "Kafka clients of the `kafscale` command": KafkaClientSettings,
    "Health and metrics over HTTP": HttpSettings,
    "Health states": HealthSettings,
    "Console": ConsoleSettings,
    "Records in the console": RecordsSettings,
    "One-process mode": OneProcessSettings,
    "Kubernetes operator": OperatorSettings,
    "Logs": LogSettings,
    "Traces": TracingSettings,
}
"""All settings classes by their headings in docs/reference/configuration.md."""

READERS: dict[str, tuple[type, ...]] = {
    "gateway": gateway.SETTINGS,
    "storage": storage.SETTINGS,
    "indexer": indexer.SETTINGS,
    "coordinator": coordinator.SETTINGS,
    "operator": operator.SETTINGS,
    "console": console.SETTINGS,
    "the one-process mode": all_in_one.SETTINGS,
    "the `kafscale` command": (*ASKING, KafkaClientSettings, BackupSettings),
}
"""The settings classes that each process reads."""

SERVICES = ("gateway", "storage", "indexer", "coordinator")
PROCESSES = (*SERVICES, "operator", "console")


_PROMETHEUS_RULE = """\
# Generated from monitoring/alerts.yaml by `make generate`; do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kafscale
spec:
"""


def _no_value() -> NoReturn:
    raise RuntimeError("values of metrics must not be read to generate a document")


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Metrics that the same services expose."""

    heading: str
    services: tuple[str, ...]
    metrics: tuple[Described, ...]

    @classmethod
    def of(cls, heading: str, services: tuple[str, ...], *families: Sequence[Family]) -> "MetricGroup":
        return cls(heading, services, tuple(Described.of(family) for some in families for family in some))


METRICS = (
    MetricGroup.of(
        "Every process",
        PROCESSES,
        process_families(""),
        EventLoop().families(),
        Health().families(),
    ),
    MetricGroup.of(
        "Metadata store and lease",
        SERVICES,
        lease_families(_no_value),
        MetadataHealth().families(),
        EtcdSpace(0).families(),
    ),
    MetricGroup.of("Received calls", SERVICES, CallCounters().families("server")),
    MetricGroup.of("Calls to other services", ("gateway", "storage", "coordinator"), CallCounters().families("client")),
    MetricGroup.of(
        "Object store",
        ("storage", "indexer"),
        OperationCounters().families(),
        StoreHealth(Thresholds()).families(),
    ),
    MetricGroup.of("Gateway", ("gateway",), gateway_monitoring.families(GatewayCounters(), _no_value)),
    MetricGroup.of(
        "Storage",
        ("storage",),
        storage_monitoring.families(StorageCounters(), _no_value, StorageSettings()),
        pool_families(_no_value),
    ),
    MetricGroup.of("Indexer", ("indexer",), indexer_monitoring.families(IndexerCounters())),
    MetricGroup.of(
        "Coordinator",
        ("coordinator",),
        coordinator_monitoring.families(CoordinatorCounters(), _no_value, CoordinatorSettings()),
    ),
    MetricGroup.of("Console", ("console",), console_monitoring.families(_no_value)),
    MetricGroup.of("Operator", ("operator",), operator_monitoring.families(OperatorCounters(), _no_value)),
    MetricGroup("Prometheus client library", PROCESSES, tuple(standard_metrics())),
)
"""All metrics, in the order of docs/reference/metrics.md."""

_ROOT = Path(__file__).resolve().parents[2]
_ALERTS = _ROOT / "monitoring" / "alerts.yaml"

_CONFIGURATION = """\
# Configuration

<!-- Generated from the settings classes by `make generate`; do not edit. -->

This page lists all settings. KafScale reads them from environment variables when a process starts.

- An empty variable counts as not set.
- If a value is invalid, the process does not start and prints a message that names the variable. It never falls back to
  a default.
- A process warns about a `KAFSCALE_` variable that nothing reads and suggests the nearest known name. It ignores the
  variables that Kubernetes creates for Services.
- A size is a number of bytes, or a number with a unit. The units `KB`, `MB`, `GB` and `TB` are powers of two, with or
  without the `i` (`4MB` = `4MiB` = 4194304 bytes).

Each section names the processes that read its variables. A variable can be set for processes that do not read it if
another process reads it.
"""

_VARIABLES = '''\
"""All environment variables that KafScale reads. Generated by `make generate`; do not edit."""

VARIABLES = (
'''

_KNOWN_SETTINGS = '''\
"""The variables that each service reads, except secrets. Generated by `make generate`; do not edit."""

KNOWN: dict[str, frozenset[str]] = {
'''

_TOPIC_CONFIGS = """\
# Topic configs

<!-- Generated from kafscale/topics/definitions.py by `make generate`; do not edit. -->

This page lists the topic configs that KafScale accepts. Their names, types, defaults and bounds are Apache Kafka's.
Apache Kafka does not have the configs that begin with `kafscale.`.

- An unknown name or an invalid value is refused with INVALID_CONFIG, even if the config has no effect in KafScale.
- Every topic config can be changed at any time. A change takes effect as soon as gateways and storage see it.
- If a topic does not set a config, the broker config in the same row applies.
"""

_BROKER_CONFIGS = """\

## Broker configs

DescribeConfigs reports these configs for a gateway, in addition to its `advertised.listeners`, `listeners`, `broker.id`
and `node.id`. All of them are read-only. A config with a variable gets its value from that variable when the process
starts. A config without a variable always has the default.

"""


_METRICS = """\
# Metrics

<!-- Generated from the code by `make generate`; do not edit. -->

This page lists all metrics. Each process serves its metrics at `/metrics` on `KAFSCALE_HTTP_ADDR`, in Prometheus' text
format. The one-process mode serves the metrics of all services and of the console, except those for calls between
services.

A histogram consists of the series `_bucket`, `_sum` and `_count`. A label value appears when it first occurs.

[Monitoring](../guides/monitoring.md) explains what to watch. Alerts and dashboards are in
[monitoring/](../../monitoring).
"""


def metrics() -> str:
    """Return docs/reference/metrics.md."""
    parts = [_METRICS]
    for group in METRICS:
        rows = [(f"`{m.name}`", m.kind, ", ".join(m.labels) or "-", m.help) for m in group.metrics]
        parts.append(f"\n## {group.heading}\n\nExposed by {', '.join(group.services)}.\n\n")
        parts.append(_table(("Metric", "Type", "Labels", "Meaning"), rows))
    return "".join(parts)


def configuration() -> str:
    """Return docs/reference/configuration.md."""
    parts = [_CONFIGURATION]
    for heading, cls in SETTINGS.items():
        rows = [
            (f"`{s.env}`", f"`{s.default_text}`" if s.default_text else "not set", s.parser.accepts, s.doc)
            for s in _declared_in(cls)
        ]
        readers = [name for name, classes in READERS.items() if any(issubclass(read, cls) for read in classes)]
        parts.append(f"\n## {heading}\n\nRead by {', '.join(readers)}.\n\n")
        parts.append(_table(("Variable", "Default", "Accepts", "Meaning"), rows))
    return "".join(parts)


def variables() -> str:
    """Return kafscale/config/variables.py."""
    names = sorted({s.env for _, settings in documented(SETTINGS.values()) for s in settings})
    return _VARIABLES + "".join(f'    "{name}",\n' for name in names) + ")\n"


def known_settings() -> str:
    """Return services/operator/clusters/known_settings.py."""
    parts = [_KNOWN_SETTINGS]
    for service in (*SERVICES, "console"):
        names = sorted({s.env for _, settings in documented(READERS[service]) for s in settings if not s.secret})
        parts += [f'    "{service}": frozenset(\n        {{\n', *(f'            "{name}",\n' for name in names)]
        parts.append("        }\n    ),\n")
    return "".join([*parts, "}\n"])


def _declared_in(cls: type) -> list[Setting]:
    """Return the settings of ``cls``, without those inherited from a class that has its own heading."""
    [(_, settings)] = documented([cls])
    bases = [base for base in SETTINGS.values() if base is not cls and issubclass(cls, base)]
    inherited = {s.env for _, found in documented(bases) for s in found}
    return [s for s in settings if s.env not in inherited]


def topic_configs() -> str:
    """Return docs/reference/topic-configs.md."""
    rows = [
        (
            f"`{d.name}`",
            d.type.name.lower(),
            f"`{d.default}`" if d.default else "empty",
            f"`{d.broker}`" if d.broker else "none",
            d.accepts,
            d.effect,
        )
        for d in sorted(DEFINITIONS.values(), key=lambda definition: definition.name)
    ]
    brokers = [
        (
            f"`{config.name}`",
            config.type.name.lower(),
            f"`{config.value(GatewaySettings())}`" if config.value(GatewaySettings()) else "empty",
            config.variable or "none",
            config.documentation,
        )
        for config in BROKER_CONFIGS.values()
    ]
    heads = ("Config", "Type", "Default", "Broker config", "Accepts", "Effect")
    table = _table(("Config", "Type", "Default", "Variable", "Effect"), brokers)
    return _TOPIC_CONFIGS + "\n" + _table(heads, rows) + _BROKER_CONFIGS + table


def prometheus_rule() -> str:
    """Return the alerts as a PrometheusRule for the Prometheus operator."""
    groups = _ALERTS.read_text().partition("\ngroups:\n")[2]
    return _PROMETHEUS_RULE + textwrap.indent(f"groups:\n{groups}", "  ")


DOCUMENTS: dict[str, Callable[[], str]] = {
    "docs/reference/access.md": access.document,
    "docs/reference/configuration.md": configuration,
    "docs/reference/groups.md": group_protocol.document,
    "docs/reference/metrics.md": metrics,
    "docs/reference/protocol.md": protocol.document,
    "docs/reference/topic-configs.md": topic_configs,
    "k8s/components/monitoring/prometheus-rule.yaml": prometheus_rule,
    "kafscale/config/variables.py": variables,
    "services/operator/clusters/known_settings.py": known_settings,
}


def differences() -> list[str]:
    """Return a diff from the files in the tree to the generated ones. Empty if all files are up to date."""
    lines: list[str] = []
    for name, document in DOCUMENTS.items():
        path = _ROOT / name
        current = path.read_text().splitlines() if path.exists() else []
        lines += difflib.unified_diff(current, document().splitlines(), name, f"{name} as generated", lineterm="")
    return lines


@click.command()
@click.option("--check/--write", default=False, help="Compare the files with the code instead of writing them.")
def main(check: bool) -> None:
    """Write the files that are generated from code: references, lists of variables, alerts for Kubernetes."""
    if not check:
        for name, document in DOCUMENTS.items():
            path = _ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(document())
        return
    lines = differences()
    for line in lines:
        click.echo(line)
    if lines:
        click.echo("generated files are out of date: run make generate", err=True)
        sys.exit(1)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
