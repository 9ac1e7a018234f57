"""TLS between services, from PEM files that are read and checked once, at start."""

import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grpc

from kafscale.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcTls:
    """One process's files, as a client and as a server.

    ``ca_file``: who may have signed the other side's certificate. ``cert_file`` and ``key_file``: this side's own; a
    server needs them, a client shows them when it has them. ``require_client_cert``: a server takes only clients that
    show a certificate of the CA. ``server_name``: the name that a server's certificate must carry; empty: the host
    that is connected to.
    """

    ca_file: Path
    cert_file: Path | None = None
    key_file: Path | None = None
    require_client_cert: bool = False
    server_name: str = ""


def server_credentials(tls: RpcTls) -> grpc.ServerCredentials:
    """Raises ConfigError that names the file that cannot be used."""
    pair = _own_pair(tls)
    if pair is None:
        raise ConfigError("TLS: a server needs a certificate and its key")
    return grpc.ssl_server_credentials([pair], _authorities(tls), tls.require_client_cert)


@cache
def channel_credentials(tls: RpcTls) -> grpc.ChannelCredentials:
    """The files are read once in a process's life. Raises ConfigError that names the file that cannot be used."""
    key, certificate = _own_pair(tls) or (None, None)
    return grpc.ssl_channel_credentials(_authorities(tls), key, certificate)


def _own_pair(tls: RpcTls) -> tuple[bytes, bytes] | None:
    """The key and the certificate chain."""
    if tls.cert_file is None or tls.key_file is None:
        return None
    certificate, key = _read(tls.cert_file), _read(tls.key_file)
    try:
        # gRPC would take any bytes here, and fail every connection later without a reason.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"TLS: {tls.cert_file} and {tls.key_file} are no certificate with its key: {error}"
        ) from error
    return key, certificate


def _authorities(tls: RpcTls) -> bytes:
    content = _read(tls.ca_file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(tls.ca_file)
    except ssl.SSLError as error:
        raise ConfigError(f"TLS: {tls.ca_file} holds no certificates: {error}") from error
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"TLS: {path} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted")
