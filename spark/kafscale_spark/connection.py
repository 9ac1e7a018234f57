"""The connection options, which the source and the sink share."""

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from kafscale.errors import ConfigError
from kafscale_spark.options import ENDPOINTS, PATH, TEXT, Option, Options, Parser, duration, optional, size

_BOTH = "batch, streaming"
_MIB = 1 << 20
_LONGEST_TOKEN = 16 << 10


def _token(text: str) -> str:
    """Return a token without the white space around it. Raises a ValueError that does not show it."""
    found = text.strip()
    if len(found) > _LONGEST_TOKEN or not re.fullmatch(r"[!-~]+", found):
        raise ValueError("not a token")
    return found


_TOKEN = Parser(f"1 to {_LONGEST_TOKEN} printable ASCII characters without spaces", _token)

ENDPOINTS_OPTION: Option[tuple[str, ...]] = Option(
    "kafscale.endpoints",
    ENDPOINTS,
    (),
    "Addresses of one or more storage instances. The first one that answers returns the others. Required.",
    _BOTH,
)
TLS_CA: Option[Path | None] = Option(
    "kafscale.tls.ca",
    optional(PATH),
    None,
    "The CA certificates (PEM) that are trusted to sign the certificates of the storage instances. If set, every call "
    "is encrypted. The file must exist on the driver and on every executor, as must the other TLS files. Changed files "
    "are used for new connections.",
    _BOTH,
)
TLS_CERT: Option[Path | None] = Option(
    "kafscale.tls.cert",
    optional(PATH),
    None,
    "The certificate chain (PEM) for storage instances that require client certificates.",
    _BOTH,
)
TLS_KEY: Option[Path | None] = Option(
    "kafscale.tls.key", optional(PATH), None, "The private key (PEM, not encrypted) for `kafscale.tls.cert`.", _BOTH
)
TLS_SERVER_NAME: Option[str | None] = Option(
    "kafscale.tls.serverName",
    optional(TEXT),
    None,
    "The name that the certificates of storage instances must contain, instead of the host that is connected to.",
    _BOTH,
)
TOKEN: Option[str | None] = Option(
    "kafscale.token",
    optional(_TOKEN),
    None,
    "The OAuth token that every call presents. If storage enforces ACLs, the caller is the user of the token. It is "
    "not renewed: a job that runs longer than the token is valid needs `kafscale.tokenFile`. Without TLS, the token is "
    "sent unencrypted.",
    _BOTH,
    secret=True,
)
TOKEN_FILE: Option[Path | None] = Option(
    "kafscale.tokenFile",
    optional(PATH),
    None,
    "A file with the token, instead of `kafscale.token`. It is read for each call, so that a token can be replaced "
    "before it expires. The file must exist on the driver and on every executor.",
    _BOTH,
)
CALL_TIMEOUT = Option(
    "kafscale.callTimeout",
    duration(0.1, 3600),
    30.0,
    "How long one call to a storage instance may take, and how long a scan may take to return its next message. After "
    "that, another instance is tried.",
    _BOTH,
    "30s",
)
RETRY_TIMEOUT = Option(
    "kafscale.retryTimeout",
    duration(0, 86_400),
    60.0,
    "How long calls are retried while no instance makes progress. Retries go from one instance to the next, with "
    "pauses from 0.1 s to 2 s. After that, the task or the query fails.",
    _BOTH,
    "60s",
)
KEEPALIVE = Option(
    "kafscale.keepalive",
    duration(1, 3600),
    10.0,
    "If nothing is received on a connection for this long, a keepalive ping is sent. The connection is closed if there "
    "is no response within 5 s.",
    _BOTH,
    "10s",
)
MAX_MESSAGE_BYTES = Option(
    "kafscale.maxMessageBytes",
    size(68 * _MIB, 1024 * _MIB),
    72 * _MIB,
    "The maximum size of a message, as in `KAFSCALE_RPC_MAX_MESSAGE_BYTES` of the services.",
    _BOTH,
    "72MB",
)

CONNECTION_OPTIONS: tuple[Option[Any], ...] = (
    ENDPOINTS_OPTION,
    TLS_CA,
    TLS_CERT,
    TLS_KEY,
    TLS_SERVER_NAME,
    TOKEN,
    TOKEN_FILE,
    CALL_TIMEOUT,
    RETRY_TIMEOUT,
    KEEPALIVE,
    MAX_MESSAGE_BYTES,
)

WINDOW_BYTES = 4 * _MIB
"""How far a scan is sent ahead of its reader, besides one message. Enough for 400 MB/s with a latency of 10 ms."""
_FRAME_BYTES = _MIB
"""Larger frames than gRPC's default cost storage less CPU time."""
_KEEPALIVE_TIMEOUT_MS = 5_000
_CONNECT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files, and the name that server certificates must contain. If empty, it is the host of the connection."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files. Raises ConfigError with the name of an unusable file."""
        authorities = _read(self.ca)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise ConfigError(f"kafscale.tls.ca: {self.ca} has no valid certificates: {error}") from error
        if self.cert is None or self.key is None:
            return grpc.ssl_channel_credentials(authorities)
        key, certificate = _read(self.key), _read(self.cert)
        try:
            # gRPC would accept any bytes here, and later fail every connection without a reason.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(self.cert, self.key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"kafscale.tls.cert, kafscale.tls.key: {self.cert} and {self.key} are not a certificate and its key: "
                f"{error}"
            ) from error
        return grpc.ssl_channel_credentials(authorities, key, certificate)

    def state(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when a file does. Raises ConfigError with the name of a file that cannot be read."""
        found = []
        for path in (self.ca, self.cert, self.key):
            if path is not None:
                try:
                    file = path.stat()
                except OSError as error:
                    raise _unreadable(path, error) from error
                found.append((file.st_ino, file.st_size, file.st_mtime_ns))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token: its text or, if there is none, the file that has it."""

    text: str | None = field(default=None, repr=False)
    file: Path | None = None

    def read(self) -> str:
        """Return the current token. Raises a ConfigError with the name of the file if it has no valid token."""
        if self.text is not None or self.file is None:
            return self.text or ""
        try:
            with self.file.open("rb") as file:
                return _token(file.read(2 * _LONGEST_TOKEN).decode("ascii"))
        except OSError as error:
            raise ConfigError(f"kafscale.tokenFile: {self.file} cannot be read: {error.strerror}") from error
        except ValueError:
            # Without the cause, which may contain a part of the file.
            raise ConfigError(f"kafscale.tokenFile: {self.file} does not contain {_TOKEN.accepts}") from None


@dataclass(frozen=True, slots=True)
class Connection:
    """Addresses and timeouts for the storage service. Sent to every task."""

    endpoints: tuple[str, ...]
    tls: Tls | None = None
    call_seconds: float = 30.0
    retry_seconds: float = 60.0
    keepalive_seconds: float = 10.0
    max_message_bytes: int = 72 * _MIB
    token: Token | None = None

    def channel(self, endpoint: str) -> grpc.Channel:
        """Return a channel, which connects when it is first used and reconnects after a failure."""
        options: list[tuple[str, int | str]] = [
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.keepalive_time_ms", round(self.keepalive_seconds * 1000)),
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            # By default gRPC lets the window grow, to 20 MiB and more within one machine.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
            ("grpc.http2.max_frame_size", _FRAME_BYTES),
            # This package decides what is retried, and where.
            ("grpc.enable_retries", 0),
            ("grpc.service_config_disable_resolution", 1),
            # Ignore the HTTP proxy of the environment.
            ("grpc.enable_http_proxy", 0),
        ]
        if self.tls is None:
            return grpc.insecure_channel(endpoint, options)
        if self.tls.server_name:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return grpc.secure_channel(endpoint, self.tls.credentials(), options)


def connection_of(options: Options) -> Connection:
    """Return the connection of the options. Raises ConfigError if they contradict each other."""
    if not options[ENDPOINTS_OPTION]:
        raise ConfigError(
            "option kafscale.endpoints is required: addresses of storage instances, such as storage-0:9200"
        )
    ca, cert, key = options[TLS_CA], options[TLS_CERT], options[TLS_KEY]
    if (cert is None) != (key is None):
        raise ConfigError("options kafscale.tls.cert and kafscale.tls.key must both be set")
    if ca is None and (cert is not None or options[TLS_SERVER_NAME]):
        raise ConfigError("options kafscale.tls.* require kafscale.tls.ca, without which calls are not encrypted")
    text, file = options[TOKEN], options[TOKEN_FILE]
    if text is not None and file is not None:
        raise ConfigError("options kafscale.token and kafscale.tokenFile cannot both be set")
    return Connection(
        options[ENDPOINTS_OPTION],
        None if ca is None else Tls(ca, cert, key, options[TLS_SERVER_NAME] or ""),
        options[CALL_TIMEOUT],
        options[RETRY_TIMEOUT],
        options[KEEPALIVE],
        options[MAX_MESSAGE_BYTES],
        None if text is None and file is None else Token(text, file),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"kafscale.tls: {path} cannot be read: {error.strerror}")


def _no_password() -> str:
    raise ValueError("the key is encrypted")
