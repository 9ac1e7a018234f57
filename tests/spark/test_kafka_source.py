"""Spark's own Kafka source and sink on Spark 4.0.0, through the gateways of a cluster, in batches and in streams.

KafScale's own source and sink must give the same results.
"""

import base64
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.servers.spark import kafka_source_jars, spark40_python
from tests.support.broker import KafscaleBroker
from tests.support.certificates import listener_settings, server_certificates
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message, ProduceOptions
from tests.support.clients.login import Login, java_options, java_properties
from tests.support.clients.piped import PipedClient, PipedError
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.spark.session import QUICK_JAVA, environment, settings

PROGRAM = Path(__file__).parent / "programs" / "kafka_source.py"
BASE_MS = 1_700_000_000_000
# The records are older than the topics of other tests may keep.
KEPT = {"retention.ms": "-1"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "spark", "a;b c,d=e"
_NUMBERS = itertools.count()


BOTH = pytest.mark.parametrize("kind", ["kafka", "kafscale"])


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two gateways, each of which leads some partitions."""
    directory = tmp_path_factory.mktemp("kafka-source")
    with running_cluster(directory, etcd=etcd, minio=minio, gateways=2, storages=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bootstrap(cluster: Cluster) -> str:
    return cluster.bootstrap


@pytest.fixture(scope="module")
def login_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with certificates, the keys of an issuer, and two tokens of it."""
    directory, issuer = tmp_path_factory.mktemp("secured"), Issuer()
    server_certificates(directory)
    (directory / "keys.json").write_bytes(issuer.document)
    for name, audience in (("right", AUDIENCE), ("wrong", "billing")):
        (directory / f"{name}.jwt").write_text(issuer.token(time.time() + 3600, sub=USER, aud=audience))
    return directory


@pytest.fixture(scope="module")
def source(cluster: Cluster, login_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipedClient]:
    """One JVM for all cases."""
    directory = tmp_path_factory.mktemp("spark40")
    java = " ".join([QUICK_JAVA, *java_options(*login_directory.glob("*.jwt"))])
    conf = {**settings(directory, java), "spark.jars": ",".join(str(jar) for jar in kafka_source_jars())}
    python = str(spark40_python())
    variables = [f"{name}={value}" for name, value in environment(python).items()]
    endpoints = ",".join(storage.address for storage in cluster.storages)
    driver = PipedClient(["env", *variables, python, str(PROGRAM), json.dumps(conf), endpoints], cluster.bootstrap)
    yield driver
    driver.close()


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[ConfluentClient]:
    client = ConfluentClient(bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(client: ConfluentClient) -> str:
    """A new topic with three partitions."""
    name = f"source-{next(_NUMBERS)}"
    client.create_topic(name, partitions=3, configs=KEPT)
    return name


@BOTH
def test_a_batch_has_every_column(source: PipedClient, client: ConfluentClient, topic: str, kind: str) -> None:
    expected = _filled(client, topic, range(60))
    assert source.call("version") == "4.0.0"
    read = source.call("read", options={"subscribe": topic, "includeHeaders": "true"}, kind=kind)
    assert _in_order(read["rows"]) == expected
    assert read["tasks"] == 3


def test_rows_without_columns_are_refused_with_advice_on_counting(
    source: PipedClient, client: ConfluentClient, topic: str
) -> None:
    """Spark 4.0 loses rows without columns, so KafScale's source returns none and explains how to count."""
    _filled(client, topic, range(60))
    assert source.call("count", options={"subscribe": topic, "columns": "partition"}, kind="kafscale") == 60
    with pytest.raises(PipedError, match="this pyspark loses rows that have no columns; count with the option"):
        source.call("count", options={"subscribe": topic, "columns": ""}, kind="kafscale")


def test_a_batch_can_have_more_tasks_than_partitions(source: PipedClient, client: ConfluentClient, topic: str) -> None:
    expected = _filled(client, topic, range(60))
    options = {"subscribe": topic, "includeHeaders": "true", "minPartitions": "12"}
    read = source.call("read", options=options)
    assert _in_order(read["rows"]) == expected
    assert read["tasks"] >= 12


def test_ranges_are_selected_by_offset_and_by_time(source: PipedClient, client: ConfluentClient, topic: str) -> None:
    rows = _filled(client, topic, range(60))

    def read(**options: str) -> list[tuple[int, int]]:
        found = _in_order(source.call("read", options={"includeHeaders": "true", **options})["rows"])
        assert found == [row for row in rows if row in found]
        return [(row["partition"], row["offset"]) for row in found]

    first, last = json.dumps({topic: {"0": 5, "1": -2, "2": 17}}), json.dumps({topic: {"0": 9, "1": 3, "2": -1}})
    expected = [
        *((0, offset) for offset in range(5, 9)),
        *((1, offset) for offset in range(3)),
        (2, 17),
        (2, 18),
        (2, 19),
    ]
    assert read(subscribe=topic, startingOffsets=first, endingOffsets=last) == expected
    # Record n has the time BASE_MS + 1000 n, so these are records 30 to 44, over all partitions.
    since, until = str(BASE_MS + 30_000), str(BASE_MS + 45_000)
    expected = [(partition, offset) for partition in range(3) for offset in range(10, 15)]
    assert read(subscribe=topic, startingTimestamp=since, endingTimestamp=until) == expected
    by_partition = json.dumps({topic: {"1": BASE_MS + 30_001}})
    assigned = json.dumps({topic: [1]})
    assert read(assign=assigned, startingOffsetsByTimestamp=by_partition, endingTimestamp=until) == [
        (1, offset) for offset in range(10, 15)
    ]


def test_topics_are_selected_by_a_pattern(source: PipedClient, client: ConfluentClient, topic: str) -> None:
    other = f"{topic}.other"
    client.create_topic(other, partitions=2, configs=KEPT)
    client.produce(other, [Message(b"there", timestamp=BASE_MS)], ProduceOptions(partition=1))
    client.produce(topic, [Message(b"here", timestamp=BASE_MS)])
    # Spark selects a topic if the pattern is found anywhere in its name.
    read = source.call("read", options={"subscribePattern": f"^{topic}"})
    found = [(row["topic"], row["partition"], row["value"]) for row in _in_order(read["rows"])]
    assert found == [(topic, 0, _text(b"here")), (other, 1, _text(b"there"))]


@BOTH
def test_a_batch_is_written_to_the_topic_and_partition_of_its_rows(
    source: PipedClient, client: ConfluentClient, topic: str, kind: str
) -> None:
    """Keys, headers and nulls are unchanged."""
    contents: list[tuple[bytes | None, bytes | None, Any]] = [
        (b"key", b"value", (("one", b"1"), ("two", None))),
        (None, b"\x00\xff", ()),
        (b"gone", None, ()),
        (b"", b"", (("one", b""),)),
    ]
    rows = [
        {"topic": topic, "partition": 2, "key": _text(key), "value": _text(value), "headers": _headers(headers)}
        for key, value, headers in contents
    ]
    columns = ["topic", "partition", "key", "value", "headers"]
    options = {"includeHeaders": "true"} if kind == "kafka" else {}
    source.call("write", rows=rows, columns=columns, options=options, kind=kind)
    assert client.offsets(topic, partition=0) == client.offsets(topic, partition=1) == (0, 0)
    found = client.consume(topic, count=4, partition=2)
    assert sorted(map(repr, (message.content for message in found))) == sorted(map(repr, contents))


def test_a_batch_is_written_to_the_topic_of_the_option(
    source: PipedClient, client: ConfluentClient, topic: str
) -> None:
    """Keys determine the partition."""
    keys = {b"key-%d" % n for n in range(300)}
    rows = [{"key": _text(key), "value": _text(b"value of " + key)} for key in keys]
    source.call("write", rows=rows, columns=["key", "value"], options={"topic": topic})
    ends = [client.offsets(topic, partition=partition)[1] for partition in range(3)]
    found = [client.consume(topic, count=end, partition=partition) for partition, end in enumerate(ends)]
    assert all(ends)
    assert sum(ends) == len(keys)
    assert {message.key for messages in found for message in messages} == keys
    assert {message.value == b"value of " + (message.key or b"") for messages in found for message in messages} == {
        True
    }


@BOTH
def test_a_stream_copies_topics_once_across_a_restart(
    source: PipedClient, bootstrap: str, client: ConfluentClient, topic: str, tmp_path: Path, kind: str
) -> None:
    """It is stopped and restarted from its checkpoint while partitions are added. No record is lost or duplicated."""
    target = f"{topic}-copy"
    client.create_topic(target, configs=KEPT)
    _filled(client, topic, range(90))
    stream = {
        "source": {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"},
        "sink": {"topic": target},
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": {"processingTime": "100 milliseconds"},
        "name": "copy",
        "kind": kind,
    }
    source.call("start", **stream)
    _await(source, 90)
    _filled(client, topic, range(90, 150))
    batches = _await(source, 150)
    # This Spark reports a query's start to a Python source only after the first micro-batch.
    assert max(batches if kind == "kafka" else batches[1:]) <= 40
    source.call("stop", name="copy")
    _filled(client, topic, range(150, 180))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    source.call("start", **stream)
    client.produce(topic, [Message(b"added")], ProduceOptions(partition=3))
    source.call("caught_up", name="copy")
    source.call("stop", name="copy")
    assert _origins(client, target) == sorted([*((p, offset) for p in range(3) for offset in range(60)), (3, 0)])


def test_available_now_reads_all_current_records_and_stops(
    source: PipedClient, client: ConfluentClient, topic: str, tmp_path: Path
) -> None:
    """A run uses as many micro-batches as it needs. The next run continues at its end."""
    target, pattern = f"copy-of-{topic}", f"^{topic}(-more)?$"
    client.create_topic(target, configs=KEPT)
    stream = {
        "source": {
            "subscribePattern": pattern,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "50",
        },
        "sink": {"topic": target},
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": {"availableNow": True},
        "name": "now",
    }
    _filled(client, topic, range(120))
    source.call("start", **stream)
    batches = source.call("ended", name="now")
    assert sum(batches) == 120
    assert len([rows for rows in batches if rows]) >= 3
    client.create_topic(f"{topic}-more", configs=KEPT)
    client.produce(f"{topic}-more", [Message(b"%d" % n) for n in range(7)])
    source.call("start", **stream)
    assert sum(source.call("ended", name="now")) == 7
    assert len(_origins(client, target)) == 127


@pytest.fixture(scope="module")
def secured(login_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    """A broker with TLS and SASL."""
    broker = KafscaleBroker(
        tmp_path_factory.mktemp("secured-broker"),
        {
            **listener_settings(login_directory),
            "KAFSCALE_SASL_ENABLED_MECHANISMS": ",".join(MECHANISMS),
            "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": (login_directory / "keys.json").as_uri(),
            "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
            "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
            "KAFSCALE_BOOTSTRAP_USER": USER,
            "KAFSCALE_BOOTSTRAP_PASSWORD": PASSWORD,
        },
    )
    try:
        yield broker
    finally:
        broker.stop()


def _login_options(broker: KafscaleBroker, directory: Path, mechanism: str, *, right: bool) -> dict[str, str]:
    password, token = (PASSWORD, "right") if right else ("wrong", "wrong")
    login = Login(directory / "ca.pem", mechanism, USER, password)
    if mechanism == "OAUTHBEARER":
        login = Login(directory / "ca.pem", mechanism, token=directory / f"{token}.jwt")
    return {f"kafka.{name}": value for name, value in java_properties(login).items()} | {
        "kafka.bootstrap.servers": broker.bootstrap
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_batches_with_tls_and_sasl(
    source: PipedClient, secured: KafscaleBroker, login_directory: Path, mechanism: str
) -> None:
    options, topic = _login_options(secured, login_directory, mechanism, right=True), f"of-{mechanism}"
    rows = [{"topic": topic, "value": _text(b"%d" % n)} for n in range(20)]
    source.call("write", rows=rows, columns=["topic", "value"], options=options)
    read = source.call("read", options={**options, "subscribe": topic})
    assert sorted(row["value"] for row in read["rows"]) == sorted(row["value"] or "" for row in rows)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_wrong_credentials_are_an_error(
    source: PipedClient, secured: KafscaleBroker, login_directory: Path, mechanism: str
) -> None:
    wrong = _login_options(secured, login_directory, mechanism, right=False)
    with pytest.raises(PipedError, match="SaslAuthenticationException"):
        source.call("read", options={**wrong, "subscribe": "of-PLAIN"})
    with pytest.raises(PipedError, match="SaslAuthenticationException"):
        source.call("write", rows=[{"topic": "t", "value": ""}], columns=["topic", "value"], options=wrong)


def _await(source: PipedClient, rows: int) -> list[int]:
    """Return the rows of each micro-batch of the query ``copy`` that had any."""
    batches: list[int] = [rows for rows in source.call("caught_up", name="copy") if rows]
    assert sum(batches) == rows
    return batches


def _filled(client: ConfluentClient, topic: str, numbers: range) -> list[dict[str, Any]]:
    """Produce record n, with the time BASE_MS + 1000 n, to partition n % 3. Return the rows of the new records."""
    rows = []
    for partition in range(3):
        mine = [n for n in numbers if n % 3 == partition]
        messages = [
            Message(
                value=b"value-%d" % n if n % 7 else None,
                key=b"key-%d" % n if n % 5 else None,
                headers=(("n", b"%d" % n), ("null", None)) if n % 2 else (),
                timestamp=BASE_MS + 1000 * n,
            )
            for n in mine
        ]
        offsets = client.produce(topic, messages, ProduceOptions(partition=partition))
        rows += [
            {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "key": _text(message.key),
                "value": _text(message.value),
                "timestamp": message.timestamp,
                "timestampType": 0,
                "headers": _headers(message.headers) or None,
            }
            for offset, message in zip(offsets, messages, strict=True)
        ]
    return rows


def _in_order(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def _origins(client: ConfluentClient, topic: str) -> list[tuple[int, int]]:
    """Return the original partitions and offsets of the records, from the headers that the stream added."""
    found = client.consume(topic, count=client.offsets(topic)[1])
    places = [dict(message.headers)["from"] or b"" for message in found]
    return sorted((int(partition), int(offset)) for _, partition, offset in (place.split(b"/") for place in places))


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> list[list[str | None]]:
    return [[name, _text(value)] for name, value in headers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
