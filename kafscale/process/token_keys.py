"""The keys with which tokens are verified, read from the issuer's HTTPS endpoint or from a file."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import certifi
import httpcore
import structlog
import trio

from kafscale.config.tokens import TokenSettings
from kafscale.errors import ConfigError, Unavailable, reason_of
from kafscale.metadata.outage import Outage
from kafscale.security.tokens import KeySet, NoKeys

LARGEST_DOCUMENT = 256 << 10
"""The size of a JSON Web Key Set in bytes."""
_READ_SECONDS = 10.0
_AGAIN_SECONDS = 10.0
"""Seconds after which keys are read again because a token has an unknown key id."""
_PATIENCE_SECONDS = 5.0
"""Seconds for which a client with such a token waits for them."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_HEADERS = (("user-agent", "kafscale"), ("accept", "application/jwk-set+json, application/json"))
_BROKEN = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)

Read = Callable[[], Awaitable[bytes]]
"""Returns a JSON Web Key Set. Raises Unavailable."""

_log = structlog.get_logger(__name__)


class TokenKeys:
    """The current keys. `run` must be running. If the keys cannot be read, the former ones stay in use."""

    def __init__(self, read: Read, refresh_seconds: float) -> None:
        self.current = KeySet()
        """The keys; none before they were read for the first time."""
        self._read = read
        self._refresh_seconds = refresh_seconds
        self._wanted = trio.Event()
        self._tried = trio.Event()
        self._tried_at = float("-inf")

    async def run(self) -> None:
        """Read the keys now and again until cancelled. Failures are logged and retried."""
        outage = Outage("keys of tokens not read, retrying", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            self._wanted = trio.Event()
            failure = await self._try()
            if failure is not None:
                await outage.pause(failure)
                continue
            outage.over()
            with trio.move_on_after(self._refresh_seconds):
                await self._wanted.wait()

    async def read_again(self) -> bool:
        """Have the keys read now, and wait up to 5 seconds for it. Return whether that was done, even if it failed.

        Nothing is done if the last time is less than 10 seconds ago, so that unknown key ids cause few requests.
        """
        if trio.current_time() < self._tried_at + _AGAIN_SECONDS:
            return False
        self._wanted.set()
        tried = self._tried
        with trio.move_on_after(_PATIENCE_SECONDS):
            await tried.wait()
        return tried.is_set()

    async def _try(self) -> Exception | None:
        """Read the keys once. Return the failure, if any."""
        try:
            found = KeySet.parse(await self._read())
            if found.keys.keys() != self.current.keys.keys():
                _log.info("keys of tokens changed", keys=len(found.keys), unused=found.unused)
            self.current = found
        except (Unavailable, NoKeys) as error:
            return error
        finally:
            self._tried_at = trio.current_time()
            self._tried.set()
            self._tried = trio.Event()
        return None


def reader(settings: TokenSettings) -> Read:
    """Return what reads the keys from the place in the settings. Raises a ConfigError if the CA file is invalid."""
    path, ca_file = settings.token_keys_path, settings.token_keys_ca_file
    if path is not None:
        return lambda: _from_file(Path(path))
    if ca_file is not None:
        try:
            _trusting(ca_file)
        except OSError as error:
            raise ConfigError(f"KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_CA_FILE: {ca_file}: {error}") from error
    return lambda: _from_endpoint(settings.token_keys_url or "", ca_file or certifi.where())


async def _from_file(path: Path) -> bytes:
    try:
        return _checked(await trio.to_thread.run_sync(_head, path))
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error


async def _from_endpoint(url: str, ca_file: str) -> bytes:
    """Fetch over a new connection, because requests are rare and the CA file may have changed."""
    document = bytearray()
    try:
        context = await trio.to_thread.run_sync(_trusting, ca_file)
        with trio.fail_after(_READ_SECONDS):
            async with (
                httpcore.AsyncConnectionPool(ssl_context=context, max_connections=1) as pool,
                pool.stream("GET", url, headers=_HEADERS) as response,
            ):
                if response.status != 200:
                    raise Unavailable(f"the endpoint answered with status {response.status}")
                # A document that is too long is received to its end too, because httpcore's generators need it.
                async for piece in response.aiter_stream():
                    document += piece[: LARGEST_DOCUMENT + 1 - len(document)]
    except trio.TooSlowError:
        raise Unavailable(f"the endpoint did not answer within {_READ_SECONDS:g} s") from None
    except (*_BROKEN, OSError) as error:
        raise Unavailable(reason_of(error)) from error
    return _checked(bytes(document))


def _trusting(ca_file: str) -> ssl.SSLContext:
    """Return a context for connections to servers with a certificate of these CAs. Raises OSError."""
    return ssl.create_default_context(cafile=ca_file)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_DOCUMENT + 1)


def _checked(document: bytes) -> bytes:
    if len(document) > LARGEST_DOCUMENT:
        raise Unavailable(f"the JSON Web Key Set is longer than {LARGEST_DOCUMENT} bytes")
    return document
