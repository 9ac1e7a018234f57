"""The settings of every service for calls between services."""

from dataclasses import dataclass
from pathlib import Path

from kafscale.config.settings import GIB, MIB, Parser, choice, integer, optional, setting, size, text, within
from kafscale.errors import ConfigError
from kafscale.rpc.limits import LARGEST_PAYLOAD, RpcLimits
from kafscale.rpc.tls import RpcTls

REQUIRED = "required"
"""KAFSCALE_RPC_TLS_CLIENT_AUTH with which every caller has a certificate."""
_path = Parser("a path", Path)
_defaults = RpcLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSettings:
    """Limits and TLS for the calls that a process makes and serves."""

    max_message_bytes: int = setting(
        "KAFSCALE_RPC_MAX_MESSAGE_BYTES",
        default=_defaults.max_message_bytes,
        parse=within(size, LARGEST_PAYLOAD + 4 * MIB, 1 * GIB),
        doc="The maximum size of a message between services. Use the same value for all services.",
    )
    max_calls: int = setting(
        "KAFSCALE_RPC_MAX_CALLS",
        default=_defaults.max_calls,
        parse=integer(16, 1_000_000),
        doc="The maximum number of calls that a service handles at the same time, including streams. Further calls are "
        "refused with a retriable error.",
    )
    max_waiting_calls: int = setting(
        "KAFSCALE_RPC_MAX_WAITING_CALLS",
        default=_defaults.max_waiting_calls,
        parse=integer(16, 1_000_000),
        doc="The same limit for JoinGroup and SyncGroup calls, which wait for other members. These calls are counted "
        "separately, so that heartbeats and commits are accepted no matter how many of them wait.",
    )
    max_connections: int = setting(
        "KAFSCALE_RPC_MAX_CONNECTIONS",
        default=_defaults.max_connections,
        parse=integer(16, 1_000_000),
        doc="The maximum number of connections to the RPC port of a service. Further connections are closed. A "
        "connection with a silent client is closed after KAFSCALE_RPC_KEEPALIVE_MS and "
        "KAFSCALE_RPC_KEEPALIVE_TIMEOUT_MS.",
    )
    keepalive_ms: int = setting(
        "KAFSCALE_RPC_KEEPALIVE_MS",
        default=round(_defaults.keepalive_seconds * 1000),
        parse=integer(1_000, 3_600_000),
        doc="If nothing is received on a connection between services for this long, a keepalive ping is sent.",
    )
    keepalive_timeout_ms: int = setting(
        "KAFSCALE_RPC_KEEPALIVE_TIMEOUT_MS",
        default=round(_defaults.keepalive_timeout_seconds * 1000),
        parse=integer(100, 3_600_000),
        doc="How long to wait for the response to a keepalive ping. After that, the connection is closed, and the "
        "calls on it fail.",
    )
    connect_timeout_ms: int = setting(
        "KAFSCALE_RPC_CONNECT_TIMEOUT_MS",
        default=round(_defaults.connect_seconds * 1000),
        parse=integer(100, 600_000),
        doc="The timeout of one attempt to connect to another service.",
    )
    reconnect_backoff_max_ms: int = setting(
        "KAFSCALE_RPC_RECONNECT_BACKOFF_MAX_MS",
        default=round(_defaults.longest_backoff_seconds * 1000),
        parse=integer(100, 600_000),
        doc="The maximum pause between two attempts to connect. The first pause is 100 ms. Each pause is randomized by "
        "20 %.",
    )
    drain_timeout_ms: int = setting(
        "KAFSCALE_RPC_DRAIN_TIMEOUT_MS",
        default=round(_defaults.drain_seconds * 1000),
        parse=integer(0, 600_000),
        doc="How long a service that is stopping waits for its calls to finish before it cancels them.",
    )
    tls_cert_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_RPC_TLS_CERT_FILE",
        default=None,
        parse=optional(_path),
        doc="The certificate chain (PEM) that this process presents to clients and servers in calls between services. "
        "If neither this nor KAFSCALE_RPC_TLS_CA_FILE is set, calls are not encrypted.",
    )
    tls_key_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_RPC_TLS_KEY_FILE",
        default=None,
        parse=optional(_path),
        doc="The private key (PEM, not encrypted) for KAFSCALE_RPC_TLS_CERT_FILE.",
    )
    tls_ca_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_RPC_TLS_CA_FILE",
        default=None,
        parse=optional(_path),
        doc="The CA certificates (PEM) that are trusted to sign the other side's certificate. If set, every call is "
        "encrypted.",
    )
    tls_client_auth: str = setting(
        "KAFSCALE_RPC_TLS_CLIENT_AUTH",
        default="none",
        parse=choice("none", REQUIRED),
        doc="`required`: mutual TLS. Only clients with a certificate signed by a CA in KAFSCALE_RPC_TLS_CA_FILE are "
        "accepted.",
    )
    tls_server_name: str = setting(
        "KAFSCALE_RPC_TLS_SERVER_NAME",
        default="",
        parse=text,
        doc="The name that server certificates must contain. If not set, the host that the process connects to.",
    )

    def __post_init__(self) -> None:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ConfigError("KAFSCALE_RPC_TLS_CERT_FILE and KAFSCALE_RPC_TLS_KEY_FILE must be set together")
        if self.tls_cert_file is not None and self.tls_ca_file is None:
            raise ConfigError("KAFSCALE_RPC_TLS_CERT_FILE is set without KAFSCALE_RPC_TLS_CA_FILE")
        if self.tls_client_auth == REQUIRED and self.tls_cert_file is None:
            raise ConfigError("KAFSCALE_RPC_TLS_CLIENT_AUTH is required, but KAFSCALE_RPC_TLS_CERT_FILE is not set")
        if self.tls_server_name and self.tls_ca_file is None:
            raise ConfigError("KAFSCALE_RPC_TLS_SERVER_NAME is set without KAFSCALE_RPC_TLS_CA_FILE")

    def limits(self) -> RpcLimits:
        return RpcLimits(
            max_message_bytes=self.max_message_bytes,
            max_calls=self.max_calls,
            max_waiting_calls=self.max_waiting_calls,
            max_connections=self.max_connections,
            keepalive_seconds=self.keepalive_ms / 1000,
            keepalive_timeout_seconds=self.keepalive_timeout_ms / 1000,
            connect_seconds=self.connect_timeout_ms / 1000,
            longest_backoff_seconds=self.reconnect_backoff_max_ms / 1000,
            drain_seconds=self.drain_timeout_ms / 1000,
        )

    def tls(self) -> RpcTls | None:
        """Return the TLS files, or None for plaintext. A server with a CA but without a certificate does not start."""
        if self.tls_ca_file is None:
            return None
        return RpcTls(
            ca_file=self.tls_ca_file,
            cert_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            require_client_cert=self.tls_client_auth == REQUIRED,
            server_name=self.tls_server_name,
        )
