"""What TLS and SCRAM cost KafScale and Apache Kafka: produce and consume with librdkafka, with and without them.

KafScale and Apache Kafka run as one process each on a directory, once with PLAINTEXT and once with SASL_SSL. Rounds
alternate between the four, of which only one has work. Each round has a topic of its own.

    python -m tests.bench.tls_cost [--megabytes 300] [--rounds 3]
"""

import itertools
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tests.servers.apache_kafka import apache_kafka
from tests.support.broker import KafscaleBroker
from tests.support.certificates import listener_settings, server_certificates

_RECORD_BYTES = 1000
_USER, _PASSWORD = "bench", "password"
_SECURITY = "org.apache.kafka.common.security"

Client = dict[str, Any]


def _plain(bootstrap: str) -> Client:
    return {"bootstrap.servers": bootstrap, "log_level": 0}


def _secured(bootstrap: str, certificates: Path, mechanism: str = "SCRAM-SHA-512") -> Client:
    return {
        **_plain(bootstrap),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": _USER,
        "sasl.password": _PASSWORD,
    }


def _start_kafscale(stack: ExitStack, directory: Path, certificates: Path) -> tuple[Client, Client]:
    """Return the settings of clients without and with TLS and SCRAM."""
    user = {"KAFSCALE_BOOTSTRAP_USER": _USER, "KAFSCALE_BOOTSTRAP_PASSWORD": _PASSWORD}
    plain = KafscaleBroker(directory / "plain", {})
    stack.callback(plain.stop)
    secured = KafscaleBroker(directory / "secured", {**listener_settings(certificates), **user})
    stack.callback(secured.stop)
    return _plain(plain.bootstrap), _secured(secured.bootstrap, certificates)


def _start_kafka(stack: ExitStack, directory: Path, certificates: Path) -> tuple[Client, Client]:
    """Return the settings of clients without and with TLS and SCRAM."""
    # Java reads only keys in PKCS #8.
    key = load_pem_private_key((certificates / "key.pem").read_bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (certificates / "kafka.pem").write_bytes(pem + (certificates / "cert.pem").read_bytes())
    users = f'username="{_USER}" password="{_PASSWORD}" user_{_USER}="{_PASSWORD}"'
    properties = [
        "listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        f"listener.name.plaintext.plain.sasl.jaas.config={_SECURITY}.plain.PlainLoginModule required {users};",
        f"listener.name.plaintext.scram-sha-512.sasl.jaas.config={_SECURITY}.scram.ScramLoginModule required;",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates / 'kafka.pem'}",
        # Kafka checks that it could connect to itself.
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates / 'ca.pem'}",
    ]
    plain = stack.enter_context(apache_kafka(directory / "plain"))
    secured = stack.enter_context(apache_kafka(directory / "secured", properties=properties))
    admin = AdminClient(_secured(secured.bootstrap, certificates, "PLAIN"))
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(_USER, credential, _PASSWORD.encode())
    admin.alter_user_scram_credentials([change])[_USER].result(60)
    return _plain(plain.bootstrap), _secured(secured.bootstrap, certificates)


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
    """Compare listeners with TLS and SCRAM with plaintext ones, of KafScale and of Apache Kafka."""
    records = int(megabytes * 1e6 / _RECORD_BYTES)
    rates: dict[tuple[str, str, bool], list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        certificates = Path(scratch)
        server_certificates(certificates)
        clients = {
            "KafScale": _start_kafscale(stack, certificates / "kafscale", certificates),
            "Kafka": _start_kafka(stack, certificates / "kafka", certificates),
        }
        # The first round does not count.
        for number in range(rounds + 1):
            for server, encrypted in itertools.product(clients, (False, True)):
                client = clients[server][encrypted]
                for load, run in (("produce", _produce), ("consume", _consume)):
                    rate = run(client, f"round-{number}", records)
                    if number:
                        rates.setdefault((load, server, encrypted), []).append(rate)
                        click.echo(f"{load}, {server}, {_kind(encrypted)}: {rate:.0f} MB/s")
    for load in ("produce", "consume"):
        medians = {key[1:]: median(found) for key, found in rates.items() if key[0] == load}
        for server in clients:
            plain, secured = medians[server, False], medians[server, True]
            click.echo(
                f"{load}, {server}: {plain:.0f} MB/s {_kind(False)}, {secured:.0f} MB/s {_kind(True)}, ", nl=False
            )
            click.echo(f"ratio {secured / plain:.2f}")
        for encrypted in (False, True):
            ratio = medians["KafScale", encrypted] / medians["Kafka", encrypted]
            click.echo(f"{load}, KafScale to Kafka, {_kind(encrypted)}: ratio {ratio:.2f}")


def _kind(encrypted: bool) -> str:
    return "TLS and SCRAM" if encrypted else "plaintext"


if __name__ == "__main__":
    main()
