"""Source and sink with a KafScale that requires TLS and trusted client certificates."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from pyspark.sql import DataFrame, SparkSession

import kafscale_spark
from tests.spark.consume import consume
from tests.spark.topics import Topics
from tests.support.broker import KafscaleBroker

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Files:
    """A CA, and a certificate of it for 127.0.0.1."""

    ca: str
    cert: str
    key: str

    @classmethod
    def made(cls, directory: Path) -> "Files":
        directory.mkdir()
        files = cls(*(str(directory / name) for name in ("ca.pem", "cert.pem", "key.pem")))
        ca = trustme.CA()
        issued = ca.issue_cert("127.0.0.1")
        ca.cert_pem.write_to_path(files.ca)
        issued.cert_chain_pems[0].write_to_path(files.cert)
        issued.private_key_pem.write_to_path(files.key)
        return files

    @property
    def options(self) -> dict[str, str]:
        return {"kafscale.tls.ca": self.ca, "kafscale.tls.cert": self.cert, "kafscale.tls.key": self.key}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.made(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def broker(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    env = {f"KAFSCALE_RPC_TLS_{name.upper()}_FILE": getattr(files, name) for name in ("ca", "cert", "key")}
    broker = KafscaleBroker(tmp_path_factory.mktemp("broker"), {**env, "KAFSCALE_RPC_TLS_CLIENT_AUTH": "required"})
    try:
        yield broker
    finally:
        broker.stop()


def _read(spark: SparkSession, endpoints: str, **options: str) -> DataFrame:
    kafscale_spark.register(spark)
    return spark.read.format("kafscale").options(**{"kafscale.endpoints": endpoints}, **options).load()


def test_records_are_written_and_read_over_mutual_tls(
    spark: SparkSession, broker: KafscaleBroker, files: Files
) -> None:
    topic = Topics(broker.bootstrap).make(2)
    kafscale_spark.register(spark)
    writer = spark.range(100).selectExpr("cast(id as string) as value").write.format("kafscale").mode("append")
    writer.options(**{"kafscale.endpoints": broker.rpc}, **files.options).option("topic", topic).save()
    values = sorted(record.value or b"" for record in consume(broker.bootstrap, topic, 2))
    assert values == sorted(b"%d" % n for n in range(100))
    read = _read(spark, broker.rpc, subscribe=topic, columns="value", **files.options)
    assert sorted(bytes(row.value) for row in read.collect()) == values


def test_an_instance_with_an_unknown_authority_is_refused(
    spark: SparkSession, broker: KafscaleBroker, files: Files, tmp_path: Path
) -> None:
    """The error is immediate, because retries cannot help."""
    options = {**files.options, "kafscale.tls.ca": Files.made(tmp_path / "theirs").ca, "kafscale.retryTimeout": "1h"}
    with pytest.raises(Exception, match=r"TLS with kafscale\.tls\.\* is not possible.*CERTIFICATE_VERIFY_FAILED"):
        _read(spark, broker.rpc, subscribe="t", **options).collect()
