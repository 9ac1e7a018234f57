"""Source and sink with a KafScale that enforces ACLs, as users of tokens."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from pyspark.sql import SparkSession

import kafscale_spark
from tests.spark.consume import consume
from tests.spark.topics import Topics
from tests.support.broker import KafscaleBroker
from tests.support.issuer import AUDIENCE, ISSUER, Issuer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    directory = tmp_path_factory.mktemp("broker")
    keys = directory / "keys.json"
    keys.write_bytes(Issuer().document)
    broker = KafscaleBroker(
        directory,
        {
            "KAFSCALE_ACLS": "true",
            "KAFSCALE_SUPER_USERS": "User:ANONYMOUS",
            "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": keys.as_uri(),
            "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
            "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
        },
    )
    try:
        yield broker
    finally:
        broker.stop()


def _allow_ann(bootstrap: str, operation: AclOperation, kind: ResourceType, prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    acl = AclBinding(kind, prefix, ResourcePatternType.PREFIXED, "User:ann", "*", operation, AclPermissionType.ALLOW)
    for made in admin.create_acls([acl]).values():
        made.result(30)


def test_a_job_is_the_user_of_its_token(
    spark: SparkSession, broker: KafscaleBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic, file = Topics(broker.bootstrap).make(2), tmp_path / "token"
    kafscale_spark.register(spark)
    ann, bob = (Issuer().token(time.time() + 3600, sub=name) for name in ("ann", "bob"))
    file.write_text(ann)
    writer = spark.range(10).selectExpr("cast(id as string) as value").write.format("kafscale").mode("append")
    writer.options(**{"kafscale.endpoints": broker.rpc, "kafscale.tokenFile": str(file), "topic": topic})
    _allow_ann(broker.bootstrap, AclOperation.WRITE, ResourceType.TOPIC, topic)
    with pytest.raises(Exception, match=r"User:ann needs WRITE on TRANSACTIONAL_ID and WRITE on TOPIC"):
        writer.save()
    _allow_ann(broker.bootstrap, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "batch-")
    writer.save()
    assert len(list(consume(broker.bootstrap, topic, 2))) == 10
    given = {"kafscale.endpoints": broker.rpc, "subscribe": topic, "columns": "value"}

    def read(token: str) -> int:
        frame = spark.read.format("kafscale").options(**given, **{"kafscale.token": token}).load()
        frame.explain("extended")
        return len(frame.collect())

    _allow_ann(broker.bootstrap, AclOperation.READ, ResourceType.TOPIC, topic)
    assert read(ann) == 10
    with pytest.raises(Exception, match=r"User:bob needs") as denied:
        read(bob)
    with pytest.raises(Exception, match=r"the token has expired") as expired:
        read(Issuer().token(time.time() - 3600))
    shown = "".join(capfd.readouterr()) + str(denied.value) + str(expired.value)
    assert "== Physical Plan ==" in shown
    assert ann not in shown
    assert bob not in shown
