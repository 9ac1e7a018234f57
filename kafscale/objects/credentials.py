"""The credentials that a process on AWS gets from its environment, renewed before they expire.

The source is chosen once, at start, as the first of these that is configured: environment variables, a role with a web
identity token, the shared credentials file, the container's endpoint, the instance's metadata service (version 2). If
the source fails, it is retried. No other source is tried, because it may have another identity.
"""

import configparser
import math
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog
import trio
import urllib3
from minio.credentials.credentials import Credentials
from minio.credentials.providers import AWSConfigProvider, EnvAWSProvider, IamAwsProvider

from kafscale.errors import ConfigError, Unavailable
from kafscale.threads import RunSync, run_in_abandoned_thread

_CONNECT_SECONDS = 2.0
_READ_SECONDS = 10.0
_RENEWED_BEFORE_END_SECONDS = 300.0
"""Credentials that live for less than twice this are renewed halfway through the remaining time."""
_STEP_SECONDS = 60.0
"""How often credentials without an expiry are read again, such as a file that another program writes."""
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_QUERY = re.compile(r"\?\S*")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """A source of credentials. ``fetch`` blocks and may raise any exception."""

    name: str
    fetch: Callable[[], Credentials]


def find_source() -> Source:
    """Return the source that the AWS_* variables of this process select, without using it yet.

    Raises ConfigError if they select none.
    """
    environ = os.environ
    if environ.get("AWS_ACCESS_KEY_ID") or environ.get("AWS_SECRET_ACCESS_KEY"):
        return Source("the AWS_ACCESS_KEY_ID of the environment", lambda: EnvAWSProvider().retrieve())
    if environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return Source("the role of AWS_WEB_IDENTITY_TOKEN_FILE", lambda: _fetch(environ.get("AWS_ENDPOINT_URL_STS")))
    if environ.get("AWS_PROFILE") or environ.get("AWS_SHARED_CREDENTIALS_FILE") or _has_default_profile():
        return Source("the shared credentials file", lambda: AWSConfigProvider().retrieve())
    if environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") or environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return Source("the container's credentials endpoint", lambda: _fetch(None))
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise ConfigError(
            "KAFSCALE_S3_CREDENTIALS: aws, but no AWS_* variable and no file provides credentials, and "
            "AWS_EC2_METADATA_DISABLED is set"
        )
    endpoint = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "").rstrip("/") or None
    return Source("the instance's metadata service", lambda: _fetch(endpoint))


class RenewedCredentials:
    """A `kafscale.objects.s3_wire.CredentialsProvider`.

    A call never blocks. It raises Unavailable if the credentials expired before they could be renewed.
    """

    def __init__(self, source: Source, now: Callable[[], datetime], run_sync: RunSync) -> None:
        self._source = source
        self._now = now
        self._run_sync = run_sync
        self._present: Credentials | None = None
        self._margin = 0.0
        self._failure = "not fetched yet"

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        source: Source,
        now: Callable[[], datetime],
        *,
        patience: float = 30.0,
        run_sync: RunSync = run_in_abandoned_thread,
    ) -> AsyncIterator["RenewedCredentials"]:
        """Fetch credentials and keep renewing them until the context exits.

        Raises Unavailable if ``source`` provides none for ``patience`` seconds.
        """
        made = cls(source, now, run_sync)
        deadline = trio.current_time() + patience
        while not await made._renew():
            if trio.current_time() + _FIRST_PAUSE_SECONDS > deadline:
                raise Unavailable(f"KAFSCALE_S3_CREDENTIALS: {source.name} provides none: {made._failure}")
            await trio.sleep(_FIRST_PAUSE_SECONDS)
        _log.info("credentials for S3 found", source=source.name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made._keep)
            yield made
            nursery.cancel_scope.cancel()

    def __call__(self) -> Credentials:
        if self._present is None or self._remaining() <= 0:
            raise Unavailable(f"the S3 credentials from {self._source.name} have expired: {self._failure}")
        return self._present

    def _remaining(self) -> float:
        """Return the seconds until the current credentials expire."""
        if self._present is None or self._present.expiration is None:
            return math.inf
        # minio stores it in UTC, as a naive datetime.
        return (self._present.expiration.replace(tzinfo=UTC) - self._now()).total_seconds()

    async def _keep(self) -> None:
        pause = 0.0
        while True:
            # Sleep in short steps, because the wall clock advances while the machine is suspended.
            await trio.sleep(pause or min(max(self._remaining() - self._margin, _FIRST_PAUSE_SECONDS), _STEP_SECONDS))
            if math.isfinite(self._remaining()) and self._remaining() > self._margin:
                continue
            if await self._renew():
                pause = 0.0
            else:
                pause = min(max(2 * pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
                _log.warning(
                    "credentials for S3 not renewed",
                    source=self._source.name,
                    error=self._failure,
                    remaining_seconds=self._remaining(),
                )

    async def _renew(self) -> bool:
        try:
            found = await self._run_sync(self._source.fetch)
        except Exception as error:  # noqa: BLE001  any failure of files, HTTP, XML or JSON is reported and retried
            self._failure = _described(error)
            return False
        self._present = found
        if self._remaining() > 0:
            self._margin = min(self._remaining() / 2, _RENEWED_BEFORE_END_SECONDS)
            return True
        self._failure = f"the fetched credentials expired at {found.expiration} UTC"
        return False


def _fetch(endpoint: str | None) -> Credentials:
    """Fetch credentials from STS, the container or the instance, by the AWS_* variables. ``endpoint`` replaces AWS's.

    Each call makes a new provider, because a provider caches its credentials until shortly before they expire.
    """
    timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS)
    with urllib3.PoolManager(timeout=timeout, retries=False) as http:
        return IamAwsProvider(custom_endpoint=endpoint, http_client=http).retrieve()


def _has_default_profile() -> bool:
    parser = configparser.ConfigParser()
    try:
        parser.read(Path.home() / ".aws" / "credentials")
    except (configparser.Error, RuntimeError):
        return True  # the file exists, and the error of reading it explains what is wrong
    return parser.has_option("default", "aws_access_key_id")


def _described(error: Exception) -> str:
    """Return the error's text without the queries of URLs, because one of them contains the web identity token."""
    return _QUERY.sub("", f"{type(error).__name__}: {error}")
