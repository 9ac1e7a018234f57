"""Certificates of a server in this process: read from PEM files, and again when the files change."""

import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import structlog
import trio

from kafscale.errors import ConfigError

_CHECK_SECONDS = 5.0

_log = structlog.get_logger(__name__)
T = TypeVar("T")
_State = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A server's certificate chain and its key, and the CAs of its clients' certificates."""

    certificate: Path
    key: Path
    authorities: Path | None = None


class Followed(Generic[T]):
    """What ``read`` makes of certificate files. `run` must be running, so that changed files are noticed."""

    def __init__(self, files: Iterable[CertificateFiles], read: Callable[[], T], *, settings: str, what: str) -> None:
        """Read the files. Raises a ConfigError that names the faulty one.

        ``settings`` is the prefix of the settings that name the files. ``what`` names the certificates in the log.
        """
        self._paths = [path for each in files for path in (each.certificate, each.key, each.authorities) if path]
        self._read = read
        self._settings = settings
        self._what = what
        self._state = self._current_state()
        self._fault = ""
        self.value = read()

    async def run(self) -> None:
        """Look for changed files every 5 seconds, until cancelled."""
        while True:
            await trio.sleep(_CHECK_SECONDS)
            await trio.to_thread.run_sync(self.reload)

    def reload(self) -> None:
        """Use files that have changed. A faulty change is logged, once, and the former files stay in use."""
        try:
            state = self._current_state()
            if state == self._state:
                return
            self.value = self._read()
        except ConfigError as error:
            if str(error) != self._fault:
                _log.error(f"{self._what} not changed", error=str(error))
            self._fault = str(error)
        else:
            self._state, self._fault = state, ""
            _log.info(f"{self._what} changed")

    def _current_state(self) -> _State:
        """Return what changes when a file does. Raises ConfigError."""
        try:
            files = [path.stat() for path in self._paths]
        except OSError as error:
            raise ConfigError(f"{self._settings}_*_FILE: {error.filename}: {error.strerror}") from error
        return tuple((file.st_ino, file.st_size, file.st_mtime_ns) for file in files)


def server_context(files: CertificateFiles, *, settings: str, clients: ssl.VerifyMode) -> ssl.SSLContext:
    """Return the context of a server with TLS 1.2 and 1.3. ``clients``: whether clients need a certificate.

    Raises a ConfigError that names the faulty file and its setting, which begins with ``settings``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation lets a client cause work without end.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{settings}_CERT_FILE, {settings}_KEY_FILE: {files.certificate} and {files.key} are not a certificate and "
            f"its key: {error}"
        ) from error
    if clients is not ssl.CERT_NONE and files.authorities is not None:
        context.verify_mode = clients
        try:
            context.load_verify_locations(files.authorities)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{settings}_CA_FILE: {files.authorities}: {error}") from error
    return context


def followed_context(files: CertificateFiles, *, settings: str, what: str) -> Followed[ssl.SSLContext]:
    """Return the context of an HTTP server. With ``files.authorities``, clients need a certificate.

    ``settings`` and ``what``: see `Followed`. Raises a ConfigError that names the faulty file.
    """
    read = partial(server_context, files, settings=settings, clients=ssl.CERT_REQUIRED)
    return Followed([files], read, settings=settings, what=what)


def _no_password() -> str:
    raise ValueError("the key is encrypted")
