"""What every service reads about the calls between services."""

from dataclasses import dataclass
from pathlib import Path

from kafscale.errors import ConfigError
from kafscale.rpc.limits import LARGEST_PAYLOAD, RpcLimits
from kafscale.rpc.tls import RpcTls
from kafscale.service.settings import GIB, MIB, Parser, choice, integer, optional, setting, size, text, within

_path = Parser("a path", Path)
_defaults = RpcLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSettings:
    """Limits and TLS of a process, for the calls it makes and those it takes."""

    max_message_bytes: int = setting(
        "KAFSCALE_RPC_MAX_MESSAGE_BYTES",
        default=_defaults.max_message_bytes,
        parse=within(size, LARGEST_PAYLOAD + 4 * MIB, 1 * GIB),
        doc="The largest message between services, the same in all of them.",
    )
    max_calls: int = setting(
        "KAFSCALE_RPC_MAX_CALLS",
        default=_defaults.max_calls,
        parse=integer(16, 1_000_000),
        doc="Calls that a service has in hand at a time, streams included. It refuses more retriably.",
    )
    max_waiting_calls: int = setting(
        "KAFSCALE_RPC_MAX_WAITING_CALLS",
        default=_defaults.max_waiting_calls,
        parse=integer(16, 1_000_000),
        doc="The same for JoinGroup and SyncGroup calls, which wait for other members: they are counted by themselves, "
        "so that heartbeats and commits are taken however many wait.",
    )
    keepalive_ms: int = setting(
        "KAFSCALE_RPC_KEEPALIVE_MS",
        default=round(_defaults.keepalive_seconds * 1000),
        parse=integer(1_000, 3_600_000),
        doc="A connection between services on which nothing came for this long is asked for a sign of life.",
    )
    keepalive_timeout_ms: int = setting(
        "KAFSCALE_RPC_KEEPALIVE_TIMEOUT_MS",
        default=round(_defaults.keepalive_timeout_seconds * 1000),
        parse=integer(100, 3_600_000),
        doc="How long that sign may take; then the connection is given up, and the calls on it fail.",
    )
    connect_timeout_ms: int = setting(
        "KAFSCALE_RPC_CONNECT_TIMEOUT_MS",
        default=round(_defaults.connect_seconds * 1000),
        parse=integer(100, 600_000),
        doc="How long one attempt to connect to another service may take.",
    )
    reconnect_backoff_max_ms: int = setting(
        "KAFSCALE_RPC_RECONNECT_BACKOFF_MAX_MS",
        default=round(_defaults.longest_backoff_seconds * 1000),
        parse=integer(100, 600_000),
        doc="The longest pause between two attempts to connect. The first is 100 ms; each is spread by 20 %.",
    )
    drain_timeout_ms: int = setting(
        "KAFSCALE_RPC_DRAIN_TIMEOUT_MS",
        default=round(_defaults.drain_seconds * 1000),
        parse=integer(0, 600_000),
        doc="How long a stopping service lets the calls that it has in hand finish before it cancels them.",
    )
    tls_cert_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_RPC_TLS_CERT_FILE",
        default=None,
        parse=optional(_path),
        doc="This process's certificate chain (PEM) for calls between services, shown to clients and to servers. "
        "Unset with KAFSCALE_RPC_TLS_CA_FILE: no encryption.",
    )
    tls_key_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_RPC_TLS_KEY_FILE",
        default=None,
        parse=optional(_path),
        doc="The key (PEM, not encrypted) of KAFSCALE_RPC_TLS_CERT_FILE.",
    )
    tls_ca_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_RPC_TLS_CA_FILE",
        default=None,
        parse=optional(_path),
        doc="The certificates (PEM) of who may have signed the other side's certificate. Set, every call is encrypted.",
    )
    tls_client_auth: str = setting(
        "KAFSCALE_RPC_TLS_CLIENT_AUTH",
        default="none",
        parse=choice("none", "required"),
        doc="`required`: mutual TLS, only clients with a certificate of KAFSCALE_RPC_TLS_CA_FILE are taken.",
    )
    tls_server_name: str = setting(
        "KAFSCALE_RPC_TLS_SERVER_NAME",
        default="",
        parse=text,
        doc="The name that servers' certificates must carry. Unset: the host that is connected to.",
    )

    def __post_init__(self) -> None:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ConfigError("KAFSCALE_RPC_TLS_CERT_FILE and KAFSCALE_RPC_TLS_KEY_FILE go together; one is not set")
        if self.tls_cert_file is not None and self.tls_ca_file is None:
            raise ConfigError("KAFSCALE_RPC_TLS_CERT_FILE is set without KAFSCALE_RPC_TLS_CA_FILE")
        if self.tls_client_auth == "required" and self.tls_cert_file is None:
            raise ConfigError("KAFSCALE_RPC_TLS_CLIENT_AUTH is required, but KAFSCALE_RPC_TLS_CERT_FILE is not set")
        if self.tls_server_name and self.tls_ca_file is None:
            raise ConfigError("KAFSCALE_RPC_TLS_SERVER_NAME is set without KAFSCALE_RPC_TLS_CA_FILE")

    def limits(self) -> RpcLimits:
        return RpcLimits(
            max_message_bytes=self.max_message_bytes,
            max_calls=self.max_calls,
            max_waiting_calls=self.max_waiting_calls,
            keepalive_seconds=self.keepalive_ms / 1000,
            keepalive_timeout_seconds=self.keepalive_timeout_ms / 1000,
            connect_seconds=self.connect_timeout_ms / 1000,
            longest_backoff_seconds=self.reconnect_backoff_max_ms / 1000,
            drain_seconds=self.drain_timeout_ms / 1000,
        )

    def tls(self) -> RpcTls | None:
        """None: plaintext. A server with a CA and no certificate of its own does not start."""
        if self.tls_ca_file is None:
            return None
        return RpcTls(
            ca_file=self.tls_ca_file,
            cert_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            require_client_cert=self.tls_client_auth == "required",
            server_name=self.tls_server_name,
        )
