"""What TLS and SCRAM cost: produce and consume with librdkafka, compared with a plaintext listener in the same run.

Two one-process systems on directories, of which one has SASL_SSL. Rounds alternate. Each round has a topic of its own.

    python -m tests.bench.tls_cost [--megabytes 300] [--rounds 3]
"""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import click
import trustme
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker import KafscaleBroker

_RECORD_BYTES = 1000
_USER, _PASSWORD = "bench", "password"
_SECURED = "TLS and SCRAM"


def _secured(directory: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the settings of a system with SASL_SSL and of its clients."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(directory / "key.pem")
    (directory / "cert.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    server = {
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:SASL_SSL",
        "KAFSCALE_TLS_CERT_FILE": str(directory / "cert.pem"),
        "KAFSCALE_TLS_KEY_FILE": str(directory / "key.pem"),
        "KAFSCALE_BOOTSTRAP_USER": _USER,
        "KAFSCALE_BOOTSTRAP_PASSWORD": _PASSWORD,
    }
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": _USER,
        "sasl.password": _PASSWORD,
    }
    return server, client


def _produce(client: Mapping[str, Any], topic: str, records: int) -> float:
    """Return MB/s."""
    admin = AdminClient(dict(client))
    [made] = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    made.result()
    producer, value = Producer({**client, "linger.ms": 5, "compression.type": "none"}), bytes(_RECORD_BYTES)
    began = time.monotonic()
    for _ in range(records):
        producer.produce(topic, value)
        producer.poll(0.001 if len(producer) > 50_000 else 0)
    producer.flush()
    return records * _RECORD_BYTES / (time.monotonic() - began) / 1e6


def _consume(client: Mapping[str, Any], topic: str, records: int) -> float:
    """Return MB/s."""
    consumer = Consumer({**client, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    began, found = time.monotonic(), 0
    while found < records:
        found += len(consumer.consume(5000, 1))
    seconds = time.monotonic() - began
    consumer.close()
    return records * _RECORD_BYTES / seconds / 1e6


@click.command()
@click.option("--megabytes", default=300.0, show_default=True, help="The payload of a round.")
@click.option("--rounds", default=3, show_default=True)
def main(megabytes: float, rounds: int) -> None:
    """Compare a listener with TLS and SCRAM with a plaintext one."""
    records = int(megabytes * 1e6 / _RECORD_BYTES)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        server, secured = _secured(directory)
        kinds: dict[str, tuple[dict[str, str], dict[str, Any]]] = {"plaintext": ({}, {}), _SECURED: (server, secured)}
        brokers = {name: KafscaleBroker(directory / name[:3], settings) for name, (settings, _) in kinds.items()}
        rates: dict[tuple[str, str], list[float]] = {}
        for number in range(rounds):
            for name, (_, settings) in kinds.items():
                client = {"bootstrap.servers": brokers[name].bootstrap, "log_level": 0, **settings}
                for load, run in (("produce", _produce), ("consume", _consume)):
                    rate = run(client, f"round-{number}", records)
                    rates.setdefault((load, name), []).append(rate)
                    click.echo(f"{load}, {name}: {rate:.0f} MB/s")
        for broker in brokers.values():
            broker.stop()
    for load in ("produce", "consume"):
        plain, encrypted = (median(rates[load, name]) for name in ("plaintext", _SECURED))
        click.echo(
            f"{load}: {plain:.0f} MB/s plaintext, {encrypted:.0f} MB/s {_SECURED}, ratio {encrypted / plain:.2f}"
        )


if __name__ == "__main__":
    main()
