"""Tests specific to S3, on a real MinIO: wrong settings, expired signatures, lost answers."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import urlsplit

import pytest
import trio

from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.objects.http_connections import HttpLimits
from kafscale.objects.interface import MOST_CLOCK_SKEW_SECONDS, ObjectNotFound, PreconditionFailed
from kafscale.objects.retry import Backoff, RetryingObjectStore
from kafscale.objects.s3 import S3ObjectStore
from kafscale.objects.s3_wire import SIGNATURE_SECONDS, S3Config
from tests.support.proxies.s3 import S3FaultProxy, S3Faults


def off_by(seconds: float) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) + timedelta(seconds=seconds)


@asynccontextmanager
async def lossy_proxy(config: S3Config, lose: Callable[[bytes], bool]) -> AsyncIterator[S3Config]:
    """Forwards requests to the server. Drops the reply and the connection if ``lose`` returns true for a request."""
    server = urlsplit(config.endpoint)

    async def handle(client: trio.SocketStream) -> None:
        upstream = await trio.open_tcp_stream(server.hostname or "", server.port or 0)
        lost = False
        async with client, upstream, trio.open_nursery() as nursery:

            async def forward() -> None:
                nonlocal lost
                async for part in client:
                    lost = lost or lose(bytes(part))
                    await upstream.send_all(part)
                nursery.cancel_scope.cancel()

            nursery.start_soon(forward)
            async for part in upstream:
                if lost:
                    break
                await client.send_all(part)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        yield replace(config, endpoint=f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("operation", ["create", "replace"])
async def test_a_put_whose_answer_was_lost_is_recognised_as_ones_own(s3_config: S3Config, operation: str) -> None:
    heads: list[bytes] = []

    def lose_first_put(part: bytes) -> bool:
        if part.startswith(b"PUT"):
            heads.append(part)
        return part.startswith(b"PUT") and len(heads) == 1

    body = bytes(range(256)) * 1000
    async with S3ObjectStore.open(s3_config) as direct:
        start = await direct.put_if_absent("ns/a", b"old") if operation == "replace" else ""
        async with (
            lossy_proxy(s3_config, lose_first_put) as proxied,
            S3ObjectStore.open(proxied) as bare,
        ):
            store = RetryingObjectStore(bare, random.Random(1).random, Backoff(first=0.01))
            put = store.replace_if_match("ns/a", body, start) if start else store.put_if_absent("ns/a", body)
            etag = await put
            assert len(heads) == 2
            found = await direct.get("ns/a")
            assert (found.body, found.etag) == (body, etag)
            with pytest.raises(PreconditionFailed):
                await store.put_if_absent("ns/a", body)


async def test_a_lost_answer_without_retries_is_unavailable(s3_config: S3Config) -> None:
    async with (
        lossy_proxy(s3_config, lambda part: part.startswith(b"PUT")) as proxied,
        S3ObjectStore.open(proxied) as store,
    ):
        with pytest.raises(Unavailable):
            await store.put_if_absent("ns/a", b"body")
        assert (await store.get("ns/a")).body == b"body"


async def test_a_read_is_signed_when_it_has_a_connection_and_a_write_before_it_waits_for_one(
    s3_config: S3Config,
) -> None:
    signed = 0

    def now() -> datetime:
        nonlocal signed
        signed += 1
        return datetime.now(UTC)

    proxy = S3FaultProxy(urlsplit(s3_config.endpoint).netloc, lambda: 0.2)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        proxied = replace(s3_config, endpoint=f"http://{proxy.address}")
        async with S3ObjectStore.open(proxied, now=now, limits=HttpLimits(connections=1)) as store:
            await store.put_if_absent("ns/a", b"a")
            proxy.faults = S3Faults(slow=1)
            for operation, times in ((store.get, 1), (store.head, 1), (partial(store.put_if_absent, body=b"b"), 2)):
                signed = 0
                async with trio.open_nursery() as waiting:
                    for key in ("ns/a", "ns/a") if times == 1 else ("ns/b", "ns/c"):
                        waiting.start_soon(operation, key)
                    await trio.sleep(0.2)
                    assert signed == times
        nursery.cancel_scope.cancel()


async def test_the_probe_passes_and_leaves_nothing(s3_config: S3Config) -> None:
    async with S3ObjectStore.open(s3_config) as store:
        await store.probe("ns")
        assert await store.list_from("") == []


async def test_the_region_is_detected_if_none_is_configured(s3_config: S3Config) -> None:
    async with S3ObjectStore.open(replace(s3_config, region="")) as store:
        await store.probe("ns")


@pytest.mark.parametrize(
    ("wrong", "blamed"),
    [
        ({"bucket": "no-such-bucket"}, "KAFSCALE_S3_BUCKET"),
        ({"bucket": "Not A Bucket"}, "KAFSCALE_S3_BUCKET"),
        ({"access_key": "nobody"}, "KAFSCALE_S3_ACCESS_KEY"),
        ({"secret_key": "not-the-secret"}, "KAFSCALE_S3_SECRET_KEY"),
        ({"session_token": "not-a-token"}, "KAFSCALE_S3_SESSION_TOKEN"),
        ({"endpoint": "127.0.0.1:9000"}, "KAFSCALE_S3_ENDPOINT"),
        ({"access_key": ""}, "KAFSCALE_S3_ACCESS_KEY"),
        ({"secret_key": ""}, "KAFSCALE_S3_SECRET_KEY"),
    ],
)
async def test_a_wrong_setting_is_named(s3_config: S3Config, wrong: dict[str, str], blamed: str) -> None:
    with pytest.raises(ConfigError, match=blamed) as raised:
        async with S3ObjectStore.open(replace(s3_config, **wrong)) as store:  # type: ignore[arg-type]
            await store.probe("ns", patience=0)
    assert s3_config.secret_key not in str(raised.value)


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://no-such-host.invalid"])
async def test_an_endpoint_that_does_not_answer_is_named(s3_config: S3Config, endpoint: str) -> None:
    with pytest.raises(Unavailable, match="KAFSCALE_S3_ENDPOINT: no answer"):
        async with S3ObjectStore.open(replace(s3_config, endpoint=endpoint)) as store:
            await store.probe("ns", patience=0)


async def test_wrong_credentials_are_refused_at_every_operation(s3_config: S3Config) -> None:
    async with S3ObjectStore.open(replace(s3_config, secret_key="not-the-secret")) as store:
        with pytest.raises(Refused):
            await store.put_if_absent("ns/a", b"x")
        with pytest.raises(Refused):
            await store.replace_if_match("ns/a", b"x", "etag")
        with pytest.raises(Refused):
            await store.get("ns/a")
        with pytest.raises(Refused):
            await store.get_range("ns/a", 0, 1)
        with pytest.raises(Refused):
            await store.head("ns/a")
        with pytest.raises(Refused):
            await store.list_from("")
        with pytest.raises(Refused):
            await store.delete_many(["ns/a"])


async def test_a_deleted_bucket_is_not_an_absent_object(s3_config: S3Config) -> None:
    async with S3ObjectStore.open(replace(s3_config, bucket="no-such-bucket")) as store:
        with pytest.raises(Refused, match="NoSuchBucket"):
            await store.put_if_absent("ns/a", b"x")
        with pytest.raises(Refused, match="NoSuchBucket"):
            await store.get("ns/a")
        with pytest.raises(Refused, match="NoSuchBucket"):
            await store.head("ns/a")


@pytest.mark.parametrize("seconds", [-2 * SIGNATURE_SECONDS, -3600.0, 3600.0])
async def test_a_request_outside_its_signatures_life_is_unavailable(s3_config: S3Config, seconds: float) -> None:
    async with S3ObjectStore.open(s3_config) as store:
        await store.put_if_absent("ns/there", b"x")
    async with S3ObjectStore.open(s3_config, now=off_by(seconds)) as store:
        with pytest.raises(Unavailable):
            await store.put_if_absent("ns/a", b"x")
        with pytest.raises(Unavailable):
            await store.get("ns/there")
        with pytest.raises(Unavailable):
            await store.head("ns/there")
        with pytest.raises(Unavailable):
            await store.delete_many(["ns/there"])
    async with S3ObjectStore.open(s3_config) as store:
        assert [info.key for info in await store.list_from("")] == ["ns/there"]


async def test_deletes_are_dated_when_they_are_requested(s3_config: S3Config) -> None:
    readings = iter([-2.0 * SIGNATURE_SECONDS])

    def now() -> datetime:
        return off_by(next(readings, 0.0))()

    async with S3ObjectStore.open(s3_config) as store:
        await store.put_if_absent("ns/a", b"x")
        await store.put_if_absent("ns/b", b"x")
    async with S3ObjectStore.open(s3_config, now=now) as store:
        with pytest.raises(Unavailable):  # dated long ago, although each is sent now
            await store.delete_many(["ns/a", "ns/b"])
        assert len(await store.list_from("")) == 2


async def test_a_delete_dated_before_a_long_pause_is_refused(s3_config: S3Config) -> None:
    async with S3ObjectStore.open(s3_config) as store:
        await store.put_if_absent("ns/a", b"x")
        with pytest.raises(Unavailable):
            await store.delete_many(["ns/a"], dated=store.now() - store.settle_seconds)
        assert len(await store.list_from("")) == 1
        await store.delete_many(["ns/a"], dated=store.now())
        assert await store.list_from("") == []


def test_a_delete_has_taken_effect_when_its_signature_expires_by_the_slowest_allowed_clock() -> None:
    assert S3ObjectStore.settle_seconds >= SIGNATURE_SECONDS + MOST_CLOCK_SKEW_SECONDS


@pytest.mark.parametrize("seconds", [0.0, 8.0, -8.0])
async def test_the_clocks_offset_is_known_from_the_first_answer_and_a_large_one_stops_deletes(
    s3_config: S3Config, seconds: float
) -> None:
    async with S3ObjectStore.open(s3_config, now=off_by(seconds)) as store:
        assert store.clock_skew_seconds is None
        while store.clock_skew_seconds is None:  # an answer that took over a second tells nothing
            with pytest.raises(ObjectNotFound):
                await store.get("ns/absent")
        assert store.clock_skew_seconds == pytest.approx(-seconds, abs=2.0)
        await store.put_if_absent("ns/a", b"x")
        with pytest.raises(Unavailable, match="S3's clock") if seconds else nullcontext():
            await store.delete_many(["ns/a"])
        assert bool(await store.list_from("")) is bool(seconds)


async def test_a_session_token_is_sent_with_the_signature(s3_config: S3Config) -> None:
    async with S3ObjectStore.open(replace(s3_config, session_token="not+a/token=")) as store:
        with pytest.raises(Refused, match="Token"):
            await store.get("ns/a")


async def test_nothing_answers_after_the_server_is_gone(s3_config: S3Config) -> None:
    async with lossy_proxy(s3_config, lambda _: False) as proxied, S3ObjectStore.open(proxied) as store:
        await store.put_if_absent("ns/a", b"x")
    async with S3ObjectStore.open(proxied) as store:
        with pytest.raises(Unavailable):
            await store.put_if_absent("ns/a", b"x")
        with pytest.raises(Unavailable):
            await store.get("ns/a")
        with pytest.raises(Unavailable):
            await store.list_from("")
        with pytest.raises(Unavailable):
            await store.delete_many(["ns/a"])
