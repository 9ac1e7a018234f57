"""Checks of a bucket at start. Their errors name the setting that is wrong."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import trio

from kafscale.errors import ConfigError, KafscaleError, Refused, Unavailable
from kafscale.objects.http_connections import HttpLimits
from kafscale.objects.interface import ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.objects.s3_http import NoAnswer, S3Http
from kafscale.objects.s3_wire import CredentialsProvider, S3Config, S3Refused, Signer, parse_location
from kafscale.paths import probe_key

T = TypeVar("T")

_ANY_REGION = "us-east-1"  # answers GetBucketLocation for buckets of every region
_PAUSE_SECONDS = 1.0
_CLEANUP_SECONDS = 5.0
_BLAMED = {
    "NoSuchBucket": "KAFSCALE_S3_BUCKET",
    "InvalidBucketName": "KAFSCALE_S3_BUCKET",
    "InvalidAccessKeyId": "KAFSCALE_S3_ACCESS_KEY",
    "SignatureDoesNotMatch": "KAFSCALE_S3_SECRET_KEY",
    "InvalidToken": "KAFSCALE_S3_SESSION_TOKEN",
    "InvalidTokenId": "KAFSCALE_S3_SESSION_TOKEN",
    "ExpiredToken": "KAFSCALE_S3_SESSION_TOKEN",
    "AccessDenied": "KAFSCALE_S3_BUCKET, KAFSCALE_S3_ACCESS_KEY",
    "AuthorizationHeaderMalformed": "KAFSCALE_S3_REGION",
    "AuthorizationQueryParametersError": "KAFSCALE_S3_REGION",
    "PermanentRedirect": "KAFSCALE_S3_REGION, KAFSCALE_S3_ENDPOINT",
}


async def find_region(
    config: S3Config,
    credentials: CredentialsProvider,
    now: Callable[[], datetime],
    limits: HttpLimits,
    patience: float = 30.0,
) -> str:
    """Return the bucket's region. Raises as ``prove_conditions`` does."""
    signer = Signer(replace(config, path_style=True), _ANY_REGION, credentials)
    async with S3Http.open(signer, now, limits) as http:

        async def ask() -> str:
            try:
                return parse_location((await http.request("GET", query={"location": ""})).body)
            except S3Refused as refusal:
                if refusal.region:
                    return refusal.region
                raise

        return await _patiently(ask, patience)


async def prove_conditions(store: ObjectStore, namespace: str, patience: float) -> None:
    """Write, overwrite, replace and delete a probe object, and check that S3 honours each condition.

    Raises ConfigError, which names the wrong setting, or Unavailable if S3 does not answer or cannot serve.
    """

    async def prove() -> None:
        async with _probe_object(store, namespace) as key:
            etag = await store.put_if_absent(key, b"1")
            await _must_fail("If-None-Match", store.put_if_absent(key, b"2"))
            await _must_fail("If-Match", store.replace_if_match(key, b"3", "0" * 32))
            await store.replace_if_match(key, b"4", etag)
            if (await store.get(key)).body != b"4":
                raise ConfigError("KAFSCALE_S3_ENDPOINT: a read does not return the last write")

    await _patiently(prove, patience)


@asynccontextmanager
async def _probe_object(store: ObjectStore, namespace: str) -> AsyncIterator[str]:
    """Each attempt uses a new key, because the outcome of a put without an answer is unknown."""
    key = probe_key(namespace, uuid.uuid4().hex)
    try:
        yield key
    finally:
        with trio.move_on_after(_CLEANUP_SECONDS, shield=True), suppress(Refused, Unavailable):
            await store.delete_many([key])


async def _must_fail(condition: str, put: Awaitable[str]) -> None:
    with suppress(PreconditionFailed):
        await put
        raise ConfigError(f"KAFSCALE_S3_ENDPOINT: it ignores {condition} on PUT, which would lead to data loss")


async def _patiently(attempt: Callable[[], Awaitable[T]], patience: float) -> T:
    deadline = trio.current_time() + patience
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            if trio.current_time() + _PAUSE_SECONDS > deadline:
                if isinstance(error, NoAnswer):
                    raise Unavailable(f"KAFSCALE_S3_ENDPOINT: no answer: {error}") from error
                raise
        except ConfigError:
            raise
        except (Refused, ObjectNotFound, PreconditionFailed) as error:
            raise _blamed(error) from error
        await trio.sleep(_PAUSE_SECONDS)


def _blamed(error: KafscaleError) -> ConfigError:
    code = error.code if isinstance(error, S3Refused) else ""
    return ConfigError(f"{_BLAMED.get(code, 'KAFSCALE_S3_BUCKET, KAFSCALE_S3_ENDPOINT')}: {error}")
