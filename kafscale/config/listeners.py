"""The addresses on which the gateway listens and those that it advertises to clients, in Kafka's listener syntax.

Nothing is bound or resolved here, except for the name of this machine if an advertised address contains OWN_NAME.
"""

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafscale.config.settings import integer, optional, setting, text
from kafscale.errors import ConfigError

DEFAULT_ADDRESS = "127.0.0.1:9092"
PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols: without and with TLS, without and with authentication by SASL."""
DEFAULT_NAME = PLAINTEXT
OWN_NAME = "{hostname}"
"""Stands for the host name of this machine in advertised addresses, as containers and pods know it."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?")
_ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104  the names of "all interfaces", recognised here, not bound to


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket and the address that is advertised for it.

    An empty ``host`` means all interfaces. With port 0 the system chooses a port; an ``advertised_port`` of 0 means the
    bound port. Hosts have no brackets.
    """

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    protocol: str = PLAINTEXT

    @property
    def encrypted(self) -> bool:
        """Whether clients connect by TLS."""
        return self.protocol in (SSL, SASL_SSL)

    @property
    def by_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The listener variables. The settings class of a service with Kafka listeners inherits from this class."""

    listeners: str | None = setting(
        "KAFSCALE_LISTENERS",
        default=None,
        parse=optional(text),
        doc="The named listeners in Kafka's form, comma-separated: `NAME://host:port,NAME2://host:port`. An empty host "
        "means all interfaces. IPv6 addresses need brackets. Cannot be combined with the short form "
        "(KAFSCALE_BROKER_ADDR).",
    )
    advertised_listeners: str | None = setting(
        "KAFSCALE_ADVERTISED_LISTENERS",
        default=None,
        parse=optional(text),
        doc="The addresses that clients connect to: one for each name in KAFSCALE_LISTENERS, in the same form. The "
        f"host `{OWN_NAME}` is replaced by the name of this machine, container or pod. If not set, the addresses in "
        "KAFSCALE_LISTENERS.",
    )
    security_protocol_map: str | None = setting(
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP",
        default=None,
        parse=optional(text),
        doc=f"The security protocols of listeners: `NAME:PROTOCOL,NAME2:PROTOCOL`, each one of {', '.join(PROTOCOLS)}. "
        "A listener that is not listed and has the name of a protocol uses that one, any other uses PLAINTEXT.",
    )
    broker_addr: str | None = setting(
        "KAFSCALE_BROKER_ADDR",
        default=None,
        parse=optional(text),
        doc=f"The short form: the `host:port` of a single listener. If no listener is set at all, `{DEFAULT_ADDRESS}`.",
    )
    advertised_host: str | None = setting(
        "KAFSCALE_ADVERTISED_HOST",
        default=None,
        parse=optional(text),
        doc=f"With the short form: the host that clients connect to. `{OWN_NAME}` is replaced by the name of this "
        "machine. If not set, the host of KAFSCALE_BROKER_ADDR.",
    )
    advertised_port: int | None = setting(
        "KAFSCALE_ADVERTISED_PORT",
        default=None,
        parse=optional(integer(1, 65535)),
        doc="With the short form: the port that clients connect to. If not set, the port of KAFSCALE_BROKER_ADDR.",
    )

    def resolve(self) -> tuple[Listener, ...]:
        """Return the listeners in the configured order, at least one. Raises a ConfigError that names the variable."""
        protocols = _protocols(self.security_protocol_map)
        return tuple(
            replace(each, protocol=protocols.get(each.name, each.name if each.name in PROTOCOLS else PLAINTEXT))
            for each in self._resolved(protocols)
        )

    def _resolved(self, protocols: Mapping[str, str]) -> tuple[Listener, ...]:
        """Return the listeners without their protocols."""
        if self.listeners is None:
            unknown = set(protocols) - {DEFAULT_NAME}
            if unknown:
                raise _unknown_listener(unknown)
            return (self._short_form(),)
        for env, value in (
            ("KAFSCALE_BROKER_ADDR", self.broker_addr),
            ("KAFSCALE_ADVERTISED_HOST", self.advertised_host),
            ("KAFSCALE_ADVERTISED_PORT", self.advertised_port),
        ):
            if value is not None:
                raise ConfigError(f"KAFSCALE_LISTENERS and {env} are both set; use one of the two forms")
        named = _named_form(self.listeners, self.advertised_listeners)
        unknown = set(protocols) - {each.name for each in named}
        if unknown:
            raise _unknown_listener(unknown)
        return named

    def _short_form(self) -> Listener:
        if self.advertised_listeners is not None:
            raise ConfigError("KAFSCALE_ADVERTISED_LISTENERS is set without KAFSCALE_LISTENERS")
        host, port = parse_address("KAFSCALE_BROKER_ADDR", self.broker_addr or DEFAULT_ADDRESS)
        advertised_host = host
        if self.advertised_host is not None:
            advertised_host = _host("KAFSCALE_ADVERTISED_HOST", with_own_name(self.advertised_host).strip("[]"))
        _refuse_anywhere("KAFSCALE_ADVERTISED_HOST", DEFAULT_NAME, advertised_host)
        return Listener(DEFAULT_NAME, host, port, advertised_host, self.advertised_port or port)


def _unknown_listener(names: Iterable[str]) -> ConfigError:
    return ConfigError(f"KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP names {min(names)}, which is not a listener")


def _protocols(value: str | None) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for item in value.split(",") if value else ():
        name, _, protocol = (part.strip().upper() for part in item.partition(":"))
        if not _NAME.fullmatch(name) or protocol not in PROTOCOLS:
            raise ConfigError(
                f"KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP has {item.strip()!r}; an entry is NAME:PROTOCOL with one of "
                f"{', '.join(PROTOCOLS)}"
            )
        if name in protocols:
            raise ConfigError(f"KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP names {name} twice")
        protocols[name] = protocol
    return protocols


def _named_form(listeners: str, advertised_listeners: str | None) -> tuple[Listener, ...]:
    bound = _addresses("KAFSCALE_LISTENERS", listeners)
    advertised = bound
    if advertised_listeners is not None:
        advertised = _addresses("KAFSCALE_ADVERTISED_LISTENERS", with_own_name(advertised_listeners))
        for name, (_, port) in advertised.items():
            if name not in bound:
                raise ConfigError(f"KAFSCALE_ADVERTISED_LISTENERS names {name}, which KAFSCALE_LISTENERS does not")
            if port == 0:
                raise ConfigError(f"KAFSCALE_ADVERTISED_LISTENERS has port 0 for {name}; clients need the actual port")
    result: list[Listener] = []
    for name, (host, port) in bound.items():
        if name not in advertised:
            raise ConfigError(f"KAFSCALE_ADVERTISED_LISTENERS has no address for {name} of KAFSCALE_LISTENERS")
        _refuse_anywhere("KAFSCALE_ADVERTISED_LISTENERS", name, advertised[name][0])
        for other in result:
            if port and port == other.port and (host == other.host or host in _ANYWHERE or other.host in _ANYWHERE):
                raise ConfigError(f"KAFSCALE_LISTENERS has the same port {port} for {other.name} and {name}")
        result.append(Listener(name, host, port, *advertised[name]))
    return tuple(result)


def _addresses(env: str, value: str) -> dict[str, tuple[str, int]]:
    addresses: dict[str, tuple[str, int]] = {}
    for item in value.split(","):
        name, separator, address = item.strip().partition("://")
        if not separator or not _NAME.fullmatch(name):
            raise ConfigError(f"{env} has {item.strip()!r}; a listener is NAME://host:port")
        name = name.upper()
        if name in addresses:
            raise ConfigError(f"{env} names {name} twice")
        addresses[name] = parse_address(env, address)
    return addresses


def parse_address(env: str, value: str) -> tuple[str, int]:
    """Parse the host (empty for all interfaces) and port. Raises a ConfigError that names ``env``."""
    host, separator, port = value.rpartition(":")
    if not separator or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ConfigError(f"{env} has {value!r}; an address is host:port with a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]") and _IPV6.fullmatch(host[1:-1]):
        return host[1:-1], int(port)
    if ":" in host or "[" in host:
        raise ConfigError(f"{env} has {value!r}; an IPv6 address needs brackets, as in [::1]:9092")
    return _host(env, host) if host else "", int(port)


def with_own_name(value: str) -> str:
    """Replace OWN_NAME in ``value`` with the name of this machine."""
    return value.replace(OWN_NAME, socket.gethostname())


def is_anywhere(host: str) -> bool:
    """Return whether ``host`` means all interfaces."""
    return host in _ANYWHERE


def _host(env: str, host: str) -> str:
    if not _HOST.fullmatch(host) and not _IPV6.fullmatch(host):
        raise ConfigError(f"{env} has {host!r}, which is not a host name or address")
    return host


def _refuse_anywhere(env: str, name: str, advertised_host: str) -> None:
    if advertised_host in _ANYWHERE:
        raise ConfigError(f"listener {name} is on all interfaces; set {env} to an address that clients can connect to")
