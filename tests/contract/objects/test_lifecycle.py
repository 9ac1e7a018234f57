"""A bucket's lifecycle rules, read from a real MinIO, and from stores that do not support or do not report them."""

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import h11
import pytest
import trio
from minio import Minio as MinioClient
from minio.commonconfig import ENABLED, Filter
from minio.lifecycleconfig import Expiration, LifecycleConfig, NoncurrentVersionExpiration, Rule

from kafscale.config.stores import S3Settings, open_object_store
from kafscale.errors import Refused
from kafscale.objects.availability import StoreHealth, Thresholds
from kafscale.objects.lifecycle import LifecycleWatch
from kafscale.objects.metrics import OperationCounters
from kafscale.objects.s3 import S3ObjectStore
from kafscale.objects.s3_wire import S3Config
from kafscale.telemetry import Finding, State

EXAMPLE = Path(__file__).parents[3] / "k8s" / "s3" / "lifecycle.json"


def _set_rules(config: S3Config, *rules: Rule) -> None:
    client = MinioClient(
        urlsplit(config.endpoint).netloc, access_key=config.access_key, secret_key=config.secret_key, secure=False
    )
    client.set_bucket_lifecycle(config.bucket, LifecycleConfig(list(rules)))


def _rule(name: str, prefix: str, days: int = 7) -> Rule:
    return Rule(ENABLED, Filter(prefix=prefix), rule_id=name, expiration=Expiration(days=days))


async def _found(config: S3Config) -> Finding:
    """The finding of a process that starts on the bucket."""
    settings = S3Settings(
        namespace="production",
        bucket=config.bucket,
        region=config.region,
        endpoint=config.endpoint,
        access_key=config.access_key,
        secret_key=config.secret_key,
    )
    watch = LifecycleWatch("production")
    async with open_object_store(
        settings,
        recorder=OperationCounters(),
        health=StoreHealth(Thresholds()),
        random=random.Random(1).random,
        lifecycle=watch,
    ):
        return watch.finding()


async def test_a_bucket_without_rules_is_healthy(s3_config: S3Config) -> None:
    assert await _found(s3_config) == Finding(State.HEALTHY)


async def test_the_example_of_the_repository_is_safe(s3_config: S3Config) -> None:
    rules = json.loads(EXAMPLE.read_text())["Rules"]
    _set_rules(s3_config, *(_rule(rule["ID"], rule["Filter"]["Prefix"], rule["Expiration"]["Days"]) for rule in rules))
    assert await _found(s3_config) == Finding(State.HEALTHY)


@pytest.mark.parametrize(
    "rule",
    [
        _rule("kafscale-retention-7d", "production/"),
        _rule("everything", ""),
        _rule("short", "prod"),
    ],
    ids=lambda rule: rule.rule_id,
)
async def test_a_rule_for_the_whole_namespace_is_reported(s3_config: S3Config, rule: Rule) -> None:
    noncurrent = NoncurrentVersionExpiration(noncurrent_days=1)
    harmless = Rule(ENABLED, Filter(prefix=""), rule_id="old-ones", noncurrent_version_expiration=noncurrent)
    _set_rules(s3_config, _rule("logs-1d", "production/logs/", 1), harmless, rule)
    found = await _found(s3_config)
    assert found.state is State.DEGRADED
    assert f"lifecycle rule '{rule.rule_id}'" in found.reason
    assert "logs-1d" not in found.reason
    assert "old-ones" not in found.reason


@asynccontextmanager
async def _answering(status: int, body: bytes) -> AsyncIterator[str]:
    async def handle(stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        async with stream:
            while connection.next_event() is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(65536))
            headers = [("content-length", str(len(body))), ("connection", "close")]
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                await stream.send_all(connection.send(event) or b"")

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("status", "code"), [(501, "NotImplemented"), (403, "AccessDenied"), (405, "MethodNotAllowed")]
)
async def test_a_store_that_does_not_report_its_rules_is_not_unhealthy(status: int, code: str) -> None:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    watch = LifecycleWatch("production")
    async with _answering(status, body) as endpoint:
        config = S3Config("bucket", "us-east-1", endpoint, "key", "secret")
        async with S3ObjectStore.open(config) as store, trio.open_nursery() as nursery:
            with pytest.raises(Refused, match=code):
                await store.lifecycle()
            await nursery.start(watch.run, store.lifecycle)
            nursery.cancel_scope.cancel()
    assert watch.finding().state is State.HEALTHY
    assert code in watch.finding().reason
