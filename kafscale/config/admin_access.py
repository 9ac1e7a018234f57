"""Settings for admin calls: the addresses of the Admin service, and the token that both sides share."""

import re
from dataclasses import dataclass
from pathlib import Path

from kafscale.config.listeners import parse_address
from kafscale.config.network import DEFAULTS, Address
from kafscale.config.settings import Parser, optional, setting, text
from kafscale.errors import ConfigError
from kafscale.security.tokens import LARGEST_TOKEN

_ACCEPTED = f"16 to {LARGEST_TOKEN} printable ASCII characters without spaces"


def _parse_token(value: str) -> str:
    if not re.fullmatch(r"[!-~]{16,}", value) or len(value) > LARGEST_TOKEN:
        raise ValueError(value)
    return value


TOKEN_TEXT = Parser(_ACCEPTED, _parse_token)
"""What a token is."""


def token_of(name: str, value: str, file: str | None) -> str:
    """Return the token of the setting ``name``, or in the ``file`` of ``name_FILE``; empty if there is none.

    Raises ConfigError if the file is invalid, or if both are set.
    """
    if file is None:
        return value
    if value:
        raise ConfigError(f"{name} and {name}_FILE are both set")
    try:
        found = Path(file).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"{name}_FILE: {file} cannot be read: {error}") from None
    try:
        return _parse_token(found.decode("ascii"))
    except ValueError:
        raise ConfigError(f"{name}_FILE: {file} is not {_ACCEPTED}") from None


def _parse_servers(value: str) -> tuple[str, ...]:
    try:
        addresses = [Address(*parse_address("", part.strip())) for part in value.split(",")]
    except ConfigError as error:
        raise ValueError(value) from error
    if any(address.anywhere or not address.port for address in addresses):
        raise ValueError(value)
    return tuple(map(str, addresses))


servers: Parser[tuple[str, ...]] = Parser("`host:port`, or several separated by commas", _parse_servers, ",".join)


@dataclass(frozen=True, kw_only=True)
class AdminTokenSettings:
    """The token that gateways require and the `kafscale` command presents."""

    admin_token: str = setting(
        "KAFSCALE_ADMIN_TOKEN",
        default="",
        parse=TOKEN_TEXT,
        doc="The token that admin calls must present as `authorization: Bearer ...`. The `kafscale` command presents "
        "it; with KAFSCALE_ACLS on the gateways, it can also be a token of an OAuth issuer. If not set, only TLS "
        "restricts access. Without TLS, the token is sent unencrypted.",
        secret=True,
    )
    admin_token_file: str | None = setting(
        "KAFSCALE_ADMIN_TOKEN_FILE",
        default=None,
        parse=optional(text),
        doc="A file with the token, instead of KAFSCALE_ADMIN_TOKEN. A line break at its end is not part of the token. "
        "It is read once, at the start.",
    )

    def token(self) -> str:
        """Return the token; empty if there is none. Raises ConfigError if its file is invalid, or if both are set."""
        return token_of("KAFSCALE_ADMIN_TOKEN", self.admin_token, self.admin_token_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminClientSettings(AdminTokenSettings):
    """The settings with which the `kafscale` command reaches a cluster. Command-line options override them."""

    admin_servers: tuple[str, ...] = setting(
        "KAFSCALE_ADMIN_SERVER",
        default=(str(DEFAULTS["gateway"].rpc), str(DEFAULTS["storage"].rpc)),
        parse=servers,
        doc="The gateways that the `kafscale` command and the console can call. They use the first one that answers. "
        "The default is a separate gateway on this machine, then the one-process mode, whose own console calls only "
        "its own process.",
    )
