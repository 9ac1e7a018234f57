"""TLS between services. The PEM files are read and checked at startup, and again when they change."""

import ssl
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import grpc
import structlog

from kafscale.errors import ConfigError

_log = structlog.get_logger(__name__)

_State = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcTls:
    """The TLS files of a process, for clients and servers.

    ``ca_file``: the CAs that are trusted to sign the other side's certificate. ``cert_file`` and ``key_file``: this
    side's certificate, which is required for servers and optional for clients. ``require_client_cert``: a server
    accepts only clients with a certificate signed by the CA. ``server_name``: the name that a server's certificate must
    contain; if empty, the host that the client connects to.
    """

    ca_file: Path
    cert_file: Path | None = None
    key_file: Path | None = None
    require_client_cert: bool = False
    server_name: str = ""


def server_credentials(tls: RpcTls) -> grpc.ServerCredentials:
    """Return the credentials of a server. Raises a ConfigError that names the invalid file.

    Files that have changed are used for new connections. A faulty change is logged, and the former files stay in use.
    """
    state = state_of(tls)
    first = _server_configuration(tls)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal state
        try:
            now = state_of(tls)
            if now == state:
                return None
            state = now
            return _server_configuration(tls)
        except ConfigError as error:
            _log.error("certificate for calls between services not changed", error=str(error))
            return None

    # The stubs do not know that None means unchanged.
    return grpc.dynamic_ssl_server_credentials(first, changed, tls.require_client_cert)  # type: ignore[arg-type]


def channel_credentials(tls: RpcTls) -> grpc.ChannelCredentials:
    """Return the credentials of a client: the same until a file changes. Raises a ConfigError that names the invalid
    file."""
    return _channel_credentials(tls, state_of(tls))


@lru_cache(maxsize=16)
def _channel_credentials(tls: RpcTls, _: _State) -> grpc.ChannelCredentials:
    key, certificate = _own_pair(tls) or (None, None)
    return grpc.ssl_channel_credentials(_authorities(tls), key, certificate)


def _server_configuration(tls: RpcTls) -> grpc.ServerCertificateConfiguration:
    pair = _own_pair(tls)
    if pair is None:
        raise ConfigError("TLS: a server needs a certificate and its key")
    return grpc.ssl_server_certificate_configuration([pair], _authorities(tls))


def state_of(tls: RpcTls) -> _State:
    """Return what changes when a file does. Raises a ConfigError that names a file that cannot be read."""
    found = []
    for path in (tls.ca_file, tls.cert_file, tls.key_file):
        if path is not None:
            try:
                file = path.stat()
            except OSError as error:
                raise ConfigError(f"TLS: {path} cannot be read: {error.strerror}") from error
            found.append((file.st_ino, file.st_size, file.st_mtime_ns))
    return tuple(found)


def _own_pair(tls: RpcTls) -> tuple[bytes, bytes] | None:
    """Return the key and the certificate chain."""
    if tls.cert_file is None or tls.key_file is None:
        return None
    certificate, key = _read(tls.cert_file), _read(tls.key_file)
    try:
        # gRPC would accept any bytes here, and later fail every connection without a reason.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"TLS: {tls.cert_file} and {tls.key_file} are not a certificate and its key: {error}"
        ) from error
    return key, certificate


def _authorities(tls: RpcTls) -> bytes:
    content = _read(tls.ca_file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(tls.ca_file)
    except ssl.SSLError as error:
        raise ConfigError(f"TLS: {tls.ca_file} contains no certificates: {error}") from error
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"TLS: {path} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted")
