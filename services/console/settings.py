"""The settings of the console."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from kafscale.config.admin_access import TOKEN_TEXT, AdminClientSettings, token_of
from kafscale.config.listeners import parse_address
from kafscale.config.network import HOST, Address
from kafscale.config.settings import Parser, boolean, choice, integer, optional, setting, text
from kafscale.errors import ConfigError
from services.console.hosts import Origins, is_loopback

NONE, TOKEN = "none", "token"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?/?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_path = Parser("a path", Path)


def _parse_address(value: str) -> Address:
    try:
        return Address(*parse_address("", value))
    except ConfigError as error:
        raise ValueError(value) from error


def _parse_names(value: str) -> tuple[str, ...]:
    names = tuple(part.strip().lower() for part in value.split(",") if part.strip())
    if not all(map(_NAME.fullmatch, names)):
        raise ValueError(value)
    return names


def _parse_origin(value: str) -> str:
    found = _ORIGIN.fullmatch(value.lower())
    if found is None:
        raise ValueError(value)
    scheme, host, port = found.groups()
    # Browsers leave out the default port.
    return f"{scheme}://{host}{'' if port in (None, _DEFAULT_PORTS[scheme]) else port}"


def _parse_price(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,9})?", value):
        raise ValueError(value)
    return float(value)


_PRICE = Parser("a number with at most nine decimal places", _parse_price, lambda value: f"{value:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings(AdminClientSettings):
    """Where the console serves browsers, who may use it, and its limits."""

    console_addr: Address = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_CONSOLE_ADDR",
        default=Address(HOST, 9099),
        parse=Parser("`host:port`; an empty host means all interfaces; IPv6 addresses need brackets", _parse_address),
        doc="The address on which the console serves browsers.",
    )
    console_hosts: tuple[str, ...] = setting(
        "KAFSCALE_CONSOLE_HOSTS",
        default=(),
        parse=Parser("DNS names separated by commas", _parse_names, ",".join),
        doc="The DNS names by which browsers reach the console. `localhost` and IP addresses are always accepted. "
        "Requests with another name are refused, so that no foreign site can make a browser reach the console by a "
        "name of its own.",
    )
    console_origin: str = setting(
        "KAFSCALE_CONSOLE_ORIGIN",
        default="",
        parse=Parser("an origin such as `https://console.example.com`", _parse_origin),
        doc="The scheme, host and port at which browsers reach the console through a proxy, such as an ingress "
        "controller. Its host needs no entry in KAFSCALE_CONSOLE_HOSTS.",
    )
    console_tls_cert_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_CONSOLE_TLS_CERT_FILE",
        default=None,
        parse=optional(_path),
        doc="The certificate chain (PEM) of KAFSCALE_CONSOLE_ADDR. If set, browsers reach the console only by https. "
        "Changed files are used for new connections within seconds.",
    )
    console_tls_key_file: Path | None = setting(  # noqa: RUF009 - a field, not a default
        "KAFSCALE_CONSOLE_TLS_KEY_FILE",
        default=None,
        parse=optional(_path),
        doc="The private key (PEM, not encrypted) for KAFSCALE_CONSOLE_TLS_CERT_FILE.",
    )
    console_sign_in: str = setting(
        "KAFSCALE_CONSOLE_SIGN_IN",
        default="",
        parse=choice(NONE, TOKEN),
        doc="`token`: users sign in with a token that the gateways accept, and may do in the console what it allows. "
        "`none`: whoever reaches the console has the rights of KAFSCALE_ADMIN_TOKEN and of "
        "KAFSCALE_RPC_TLS_CERT_FILE. It must be set if KAFSCALE_CONSOLE_ADDR is not a loopback address.",
        default_text="token if KAFSCALE_ADMIN_TOKEN is set, in the one-process mode also with KAFSCALE_ACLS or "
        "KAFSCALE_RPC_TLS_CLIENT_AUTH=required; otherwise none",
    )
    console_viewer_token: str = setting(
        "KAFSCALE_CONSOLE_VIEWER_TOKEN",
        default="",
        parse=TOKEN_TEXT,
        doc="A token with which users sign in who may only read. The console presents KAFSCALE_ADMIN_TOKEN for them.",
        secret=True,
    )
    console_viewer_token_file: str | None = setting(
        "KAFSCALE_CONSOLE_VIEWER_TOKEN_FILE",
        default=None,
        parse=optional(text),
        doc="A file with that token, instead of KAFSCALE_CONSOLE_VIEWER_TOKEN. It is read once, at the start.",
    )
    console_read_only: bool = setting(
        "KAFSCALE_CONSOLE_READ_ONLY",
        default=False,
        parse=boolean,
        doc="Whether nobody may change anything in the console.",
    )
    console_max_connections: int = setting(
        "KAFSCALE_CONSOLE_MAX_CONNECTIONS",
        default=512,
        parse=integer(1, 100_000),
        doc="The maximum number of connections to the console. For a further one, the connection whose browser has "
        "been silent for the longest time is closed.",
    )
    console_max_live: int = setting(
        "KAFSCALE_CONSOLE_MAX_LIVE",
        default=128,
        parse=integer(1, 10_000),
        doc="The maximum number of pages that are updated live. Further ones are refused. It must be less than "
        "KAFSCALE_CONSOLE_MAX_CONNECTIONS.",
    )
    console_max_sessions: int = setting(
        "KAFSCALE_CONSOLE_MAX_SESSIONS",
        default=1000,
        parse=integer(1, 1_000_000),
        doc="The maximum number of signed-in browsers. Beyond it, the one that has been unused for the longest time is "
        "signed out.",
    )
    console_session_ms: int = setting(
        "KAFSCALE_CONSOLE_SESSION_MS",
        default=8 * 3_600_000,
        parse=integer(60_000, 30 * 86_400_000),
        doc="How long a browser stays signed in.",
    )
    console_call_ms: int = setting(
        "KAFSCALE_CONSOLE_CALL_MS",
        default=10_000,
        parse=integer(100, 600_000),
        doc="The timeout of a call to a gateway.",
    )

    console_lag_groups: int = setting(
        "KAFSCALE_CONSOLE_LAG_GROUPS",
        default=50,
        parse=integer(1, 10_000),
        doc="The maximum number of consumer groups whose lag the console remembers for an hour. Those are groups that "
        "somebody watched in the last hour. Beyond it, the group that nobody has watched for the longest time is "
        "forgotten.",
    )
    console_put_price: float = setting(
        "KAFSCALE_CONSOLE_PUT_PRICE",
        default=0.005,
        parse=_PRICE,
        doc="The price of 1000 PUT or LIST requests in USD, for the cost on the overview.",
    )
    console_get_price: float = setting(
        "KAFSCALE_CONSOLE_GET_PRICE",
        default=0.0004,
        parse=_PRICE,
        doc="The price of 1000 GET requests in USD, for the cost on the overview.",
    )

    def __post_init__(self) -> None:
        if self.console_max_live >= self.console_max_connections:
            raise ConfigError("KAFSCALE_CONSOLE_MAX_LIVE must be less than KAFSCALE_CONSOLE_MAX_CONNECTIONS")
        if (self.console_tls_cert_file is None) != (self.console_tls_key_file is None):
            raise ConfigError("KAFSCALE_CONSOLE_TLS_CERT_FILE and KAFSCALE_CONSOLE_TLS_KEY_FILE must be set together")
        if not self.console_sign_in and not is_loopback(self.console_addr.host):
            raise ConfigError(
                "KAFSCALE_CONSOLE_ADDR is not a loopback address; set KAFSCALE_CONSOLE_SIGN_IN to token, or to none if "
                "only trusted users can reach the address"
            )

    def resolved(self, *, secured: bool = False) -> Self:
        """Return the settings with the default of KAFSCALE_CONSOLE_SIGN_IN, if it is not set. Raises ConfigError.

        ``secured``: whether not everybody who reaches the gateways may call them, also without an admin token.
        """
        if self.console_sign_in:
            return self
        return replace(self, console_sign_in=TOKEN if secured or self.token() else NONE)

    def viewer_token(self) -> str:
        """Return the token of viewers; empty if there is none. The settings must be `resolved`. Raises ConfigError."""
        found = token_of("KAFSCALE_CONSOLE_VIEWER_TOKEN", self.console_viewer_token, self.console_viewer_token_file)
        if found and not self.signs_in:
            raise ConfigError("KAFSCALE_CONSOLE_VIEWER_TOKEN needs KAFSCALE_CONSOLE_SIGN_IN=token")
        if found and self.token() in ("", found):
            raise ConfigError("KAFSCALE_CONSOLE_VIEWER_TOKEN needs a KAFSCALE_ADMIN_TOKEN, which must be another one")
        return found

    @property
    def signs_in(self) -> bool:
        return self.console_sign_in == TOKEN

    @property
    def scheme(self) -> str:
        return "http" if self.console_tls_cert_file is None else "https"

    def origins(self) -> Origins:
        names = (*self.console_hosts, urlsplit(self.console_origin).hostname or "")
        return Origins(self.scheme, names, self.console_origin)
