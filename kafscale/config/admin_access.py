"""Settings for admin calls: the addresses of the Admin service, and the token that both sides share."""

import re
from dataclasses import dataclass

from kafscale.config.listeners import parse_address
from kafscale.config.network import DEFAULTS, Address
from kafscale.config.settings import Parser, setting
from kafscale.errors import ConfigError
from kafscale.security.tokens import LARGEST_TOKEN


def _parse_token(text: str) -> str:
    if not re.fullmatch(r"[!-~]{16,}", text) or len(text) > LARGEST_TOKEN:
        raise ValueError(text)
    return text


def _parse_servers(text: str) -> tuple[str, ...]:
    try:
        addresses = [Address(*parse_address("", part.strip())) for part in text.split(",")]
    except ConfigError as error:
        raise ValueError(text) from error
    if any(address.anywhere or not address.port for address in addresses):
        raise ValueError(text)
    return tuple(map(str, addresses))


servers: Parser[tuple[str, ...]] = Parser("`host:port`, or several separated by commas", _parse_servers, ",".join)


@dataclass(frozen=True, kw_only=True)
class AdminTokenSettings:
    """The token that gateways require and the `kafscale` command presents."""

    admin_token: str = setting(
        "KAFSCALE_ADMIN_TOKEN",
        default="",
        parse=Parser(f"16 to {LARGEST_TOKEN} printable ASCII characters without spaces", _parse_token),
        doc="The token that admin calls must present as `authorization: Bearer ...`. The `kafscale` command presents "
        "it; with KAFSCALE_ACLS on the gateways, it can also be a token of an OAuth issuer. If not set, only TLS "
        "restricts access. Without TLS, the token is sent unencrypted.",
        secret=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminClientSettings(AdminTokenSettings):
    """The settings with which the `kafscale` command reaches a cluster. Command-line options override them."""

    admin_servers: tuple[str, ...] = setting(
        "KAFSCALE_ADMIN_SERVER",
        default=(str(DEFAULTS["gateway"].rpc), str(DEFAULTS["storage"].rpc)),
        parse=servers,
        doc="The gateways that the `kafscale` command can call. It uses the first one that answers. The default is a "
        "separate gateway on this machine, then the one-process mode.",
    )
