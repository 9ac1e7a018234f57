"""The object store on S3 and compatible stores, over HTTP/1.1 on Trio, signed by ``minio``.

Every request carries a signature that is valid for SIGNATURE_SECONDS. That includes deletes. Those of keys that may be
used again are sent one object per request, because a request with a body may be admitted by its signature long before
its body arrives and takes effect.

MinIO (as of its sources of 2026-02-12) ends a listing too early, as if it were complete, if ``start_after`` is in a
directory ``x/`` and ``prefix`` also covers siblings such as ``x-...`` or ``x....`` with more objects than a page.
Listings of one topic or partition are correct there; a listing of several topics that starts after a key is not.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import md5

import trio

from kafscale.errors import KafscaleError, Unavailable
from kafscale.objects.http_connections import HttpLimits
from kafscale.objects.interface import (
    MAX_KEYS,
    MOST_CLOCK_SKEW_SECONDS,
    Body,
    Object,
    ObjectInfo,
    ObjectNotFound,
    PreconditionFailed,
    clocks_agree,
)
from kafscale.objects.keys import check_key, check_keys, check_limit, check_range, may_begin_key
from kafscale.objects.s3_http import S3Http
from kafscale.objects.s3_start import find_region, prove_conditions
from kafscale.objects.s3_wire import (
    SIGNATURE_SECONDS,
    CredentialsProvider,
    Reply,
    S3Config,
    S3Refused,
    Signer,
    deletion,
    deletion_error,
    parse_listing,
    static_credentials,
)

_DELETES_AT_ONCE = 16


def _utc_now() -> datetime:
    return datetime.now(UTC)


class S3ObjectStore:
    """``kafscale.objects.interface.ObjectStore`` on one bucket. Created by ``open``. Does not retry requests itself."""

    # A request dated by a clock ahead of S3's stays valid for that much longer.
    settle_seconds = SIGNATURE_SECONDS + MOST_CLOCK_SKEW_SECONDS

    def __init__(self, http: S3Http) -> None:
        self._http = http

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        config: S3Config,
        *,
        credentials: CredentialsProvider | None = None,
        limits: HttpLimits | None = None,
        now: Callable[[], datetime] = _utc_now,
    ) -> AsyncIterator["S3ObjectStore"]:
        """Open the bucket. ``credentials`` default to those of ``config``; without a region, S3 is asked for it.

        Raises ConfigError, which names the setting, or Unavailable if S3 does not answer or cannot serve now.
        """
        credentials = credentials or static_credentials(config)
        limits = limits or HttpLimits()
        region = config.region or await find_region(config, credentials, now, limits)
        async with S3Http.open(Signer(config, region, credentials), now, limits) as http:
            yield cls(http)

    async def probe(self, namespace: str, *, patience: float = 30.0) -> None:
        """Check that the bucket is writable under ``namespace`` and honours both PUT conditions.

        Waits up to ``patience`` seconds for S3 to come up. Raises ConfigError, which names the wrong setting, or
        Unavailable if S3 does not answer or cannot serve.
        """
        await prove_conditions(self, namespace, patience)

    @property
    def clock_skew_seconds(self) -> float | None:
        """S3's clock minus this machine's, within about a second; None before the first quick answer."""
        return self._http.clock_skew_seconds

    async def lifecycle(self) -> bytes:
        """Return the bucket's lifecycle configuration as XML, empty if it has none. Raises Refused, Unavailable."""
        try:
            return (await self._http.request("GET", query={"lifecycle": ""})).body
        except S3Refused as refusal:
            if refusal.code == "NoSuchLifecycleConfiguration":
                return b""
            raise

    def now(self) -> float:
        return self._http.now().timestamp()

    async def put_if_absent(self, key: str, body: Body, *, send_seconds: float = 0.0) -> str:
        check_key(key)
        return _etag(
            await self._http.request("PUT", key, headers={"if-none-match": "*"}, body=body, send_seconds=send_seconds)
        )

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        check_key(key)
        try:
            return _etag(await self._http.request("PUT", key, headers={"if-match": f'"{etag}"'}, body=body))
        except ObjectNotFound:
            raise PreconditionFailed(f"{key} is absent") from None

    async def get(self, key: str) -> Object:
        check_key(key)
        reply = await self._http.request("GET", key)
        return Object(reply.body, _etag(reply))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_key(key)
        check_range(start, length)
        if length == 0:  # HTTP has no empty range
            await self.head(key)
            return b""
        headers = {"range": f"bytes={start}-{start + length - 1}"}
        reply = await self._http.request("GET", key, headers=headers, expect=(200, 206, 416))
        if reply.status == 416:  # from the object's end on
            return b""
        return reply.body if reply.status == 206 else reply.body[start : start + length]

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        reply = await self._http.request("HEAD", key)
        return ObjectInfo(key, int(reply.headers["content-length"]), _etag(reply))

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        check_limit(limit)
        if not may_begin_key(prefix):  # MinIO refuses some of these
            return []
        page: list[ObjectInfo] = []
        more = True
        while more and len(page) < limit:  # S3 may return fewer than requested and still have more
            query = {
                "list-type": "2",
                "encoding-type": "url",
                "prefix": prefix,
                "start-after": page[-1].key if page else start_after,
                "max-keys": str(limit - len(page)),
            }
            found, more = parse_listing((await self._http.request("GET", query=query)).body)
            if more and not found:
                raise Unavailable(f"listing {prefix}: S3 returned an empty page but reports more")
            page += found
        return page

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        skew = self.clock_skew_seconds
        if skew is not None and not clocks_agree(skew):
            raise Unavailable(f"S3's clock is {skew:+.1f} s off this machine's: a delete could take effect much later")
        date = datetime.fromtimestamp(self.now() if dated is None else dated, UTC)
        checked = check_keys(keys)
        if unused and len(checked) > 1:
            await self._delete_together(checked)
            return
        waiting = iter(checked)
        errors: list[KafscaleError] = []

        async def delete_some() -> None:
            for key in waiting:
                try:
                    await self._http.request("DELETE", key, expect=(200, 204), date=date)
                except ObjectNotFound:
                    continue
                except KafscaleError as error:
                    errors.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(_DELETES_AT_ONCE):
                nursery.start_soon(delete_some)
        if errors:
            raise errors[0]

    async def _delete_together(self, keys: list[str]) -> None:
        body = deletion(keys)
        digest = b64encode(md5(body, usedforsecurity=False).digest()).decode()
        reply = await self._http.request("POST", query={"delete": ""}, headers={"content-md5": digest}, body=body)
        error = deletion_error(reply.body)
        if error:
            raise Unavailable(f"POST bucket?delete: {error}")


def _etag(reply: Reply) -> str:
    if not reply.etag:
        raise Unavailable(f"{reply.method} {reply.key}: the reply has no ETag")
    return reply.etag
