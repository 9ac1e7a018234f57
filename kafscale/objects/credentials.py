"""The credentials that a process on AWS is given by its surroundings, renewed before they run out.

Where they come from is decided once, at start, by what is configured: environment variables, a role with a web identity
token, the shared credentials file, the container's endpoint, the instance's metadata service (version 2), in this
order. A source that fails is asked again; another one, which may stand for somebody else, is not tried.
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
"""Those that live shorter than twice this are renewed in the middle of what is left."""
_STEP_SECONDS = 60.0
"""How often credentials without an end, such as a file that something else writes, are read again."""
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_QUERY = re.compile(r"\?\S*")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """``fetch`` blocks and may raise anything."""

    name: str
    fetch: Callable[[], Credentials]


def find_source() -> Source:
    """What the AWS_* variables of this process's environment lead to; nothing is asked yet.

    Raises ConfigError when they name no source at all.
    """
    environ = os.environ
    if environ.get("AWS_ACCESS_KEY_ID") or environ.get("AWS_SECRET_ACCESS_KEY"):
        return Source("the AWS_ACCESS_KEY_ID of the environment", lambda: EnvAWSProvider().retrieve())
    if environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return Source("the role of AWS_WEB_IDENTITY_TOKEN_FILE", lambda: _asked(environ.get("AWS_ENDPOINT_URL_STS")))
    if environ.get("AWS_PROFILE") or environ.get("AWS_SHARED_CREDENTIALS_FILE") or _has_default_profile():
        return Source("the shared credentials file", lambda: AWSConfigProvider().retrieve())
    if environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") or environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return Source("the container's credentials endpoint", lambda: _asked(None))
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise ConfigError(
            "KAFSCALE_S3_CREDENTIALS: aws, but no AWS_* variable and no file leads to credentials, and "
            "AWS_EC2_METADATA_DISABLED is set"
        )
    endpoint = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "").rstrip("/") or None
    return Source("the instance's metadata service", lambda: _asked(endpoint))


class RenewedCredentials:
    """A `kafscale.objects.s3_wire.CredentialsProvider`.

    Calling it never blocks; it raises Unavailable when what it has ran out before it could be renewed.
    """

    def __init__(self, source: Source, now: Callable[[], datetime], run_sync: RunSync) -> None:
        self._source = source
        self._now = now
        self._run_sync = run_sync
        self._present: Credentials | None = None
        self._margin = 0.0
        self._failure = "not asked yet"

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
        """With credentials, which are renewed until this is left.

        Raises Unavailable when ``source`` gives none for ``patience`` seconds.
        """
        made = cls(source, now, run_sync)
        deadline = trio.current_time() + patience
        while not await made._renew():
            if trio.current_time() + _FIRST_PAUSE_SECONDS > deadline:
                raise Unavailable(f"KAFSCALE_S3_CREDENTIALS: {source.name} gives none: {made._failure}")
            await trio.sleep(_FIRST_PAUSE_SECONDS)
        _log.info("credentials for S3 found", source=source.name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made._keep)
            yield made
            nursery.cancel_scope.cancel()

    def __call__(self) -> Credentials:
        if self._present is None or self._left() <= 0:
            raise Unavailable(f"the credentials for S3 of {self._source.name} have run out: {self._failure}")
        return self._present

    def _left(self) -> float:
        """Seconds until the present ones end."""
        if self._present is None or self._present.expiration is None:
            return math.inf
        # minio keeps it in UTC, without saying so.
        return (self._present.expiration.replace(tzinfo=UTC) - self._now()).total_seconds()

    async def _keep(self) -> None:
        pause = 0.0
        while True:
            # In short steps: the wall clock goes on while a machine sleeps.
            await trio.sleep(pause or min(max(self._left() - self._margin, _FIRST_PAUSE_SECONDS), _STEP_SECONDS))
            if math.isfinite(self._left()) and self._left() > self._margin:
                continue
            if await self._renew():
                pause = 0.0
            else:
                pause = min(max(2 * pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
                _log.warning(
                    "credentials for S3 not renewed", source=self._source.name, error=self._failure, left=self._left()
                )

    async def _renew(self) -> bool:
        try:
            found = await self._run_sync(self._source.fetch)
        except Exception as error:  # noqa: BLE001  files, HTTP, XML and JSON of others: what fails is told and tried again
            self._failure = _told(error)
            return False
        self._present = found
        if self._left() > 0:
            self._margin = min(self._left() / 2, _RENEWED_BEFORE_END_SECONDS)
            return True
        self._failure = f"it gave some that ended at {found.expiration} UTC"
        return False


def _asked(endpoint: str | None) -> Credentials:
    """Of STS, the container or the instance, by the AWS_* variables; ``endpoint`` instead of AWS's own.

    A provider keeps what it got nearly to its end: each time it is a new one.
    """
    timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS)
    with urllib3.PoolManager(timeout=timeout, retries=False) as http:
        return IamAwsProvider(custom_endpoint=endpoint, http_client=http).retrieve()


def _has_default_profile() -> bool:
    parser = configparser.ConfigParser()
    try:
        parser.read(Path.home() / ".aws" / "credentials")
    except (configparser.Error, RuntimeError):
        return True  # it is there, and reading it will say what is wrong with it
    return parser.has_option("default", "aws_access_key_id")


def _told(error: Exception) -> str:
    """Without the queries of addresses: one of them is the web identity token."""
    return _QUERY.sub("", f"{type(error).__name__}: {error}")
