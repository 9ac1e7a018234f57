"""TLS between services. The PEM files are read and checked once, at startup."""

import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grpc

from kafscale.errors import ConfigError


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
    """Return the credentials of a server. Raises a ConfigError that names the invalid file."""
    pair = _own_pair(tls)
    if pair is None:
        raise ConfigError("TLS: a server needs a certificate and its key")
    return grpc.ssl_server_credentials([pair], _authorities(tls), tls.require_client_cert)


@cache
def channel_credentials(tls: RpcTls) -> grpc.ChannelCredentials:
    """Return the credentials of a client, cached. Raises a ConfigError that names the invalid file."""
    key, certificate = _own_pair(tls) or (None, None)
    return grpc.ssl_channel_credentials(_authorities(tls), key, certificate)


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
