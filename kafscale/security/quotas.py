"""Kafka's client quotas: whom they limit, valid keys and values, and which of them applies to a client.

The rules are those of Apache Kafka's ``ClientQuotaControlManager``, ``ClientQuotasImage`` and ``DefaultQuotaCallback``:
https://kafka.apache.org/documentation/#design_quotas
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE = "producer_byte_rate"
"""Bytes per second of Produce requests."""
CONSUMER_BYTE_RATE = "consumer_byte_rate"
"""Bytes per second of records in Fetch responses."""
REQUEST_PERCENTAGE = "request_percentage"
"""Percent of the time of one event loop."""
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
"""Partitions per second that are created or deleted."""
CONNECTION_CREATION_RATE = "connection_creation_rate"
"""New connections per second, of an address."""

_INT, _LONG = ("INT", 2.0**31 - 1), ("LONG", 2.0**63)
_INTEGRAL = {PRODUCER_BYTE_RATE: _LONG, CONSUMER_BYTE_RATE: _LONG, CONNECTION_CREATION_RATE: _INT}
_OF_CLIENTS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
_OF_ADDRESSES = (CONNECTION_CREATION_RATE,)
_FRACTION: Final = 1e-6
"""Smaller fractions of an integer are ignored."""

_NOT_NAMED: Final = ""
"""Stands for the user or the client id of an entity without one. Names are never empty."""

Address = IPv4Address | IPv6Address
Limits = Mapping[str, float]
"""Quotas by their keys."""


class InvalidQuota(ValueError):
    """An entity, a key or a value is invalid. The message is Kafka's."""


@dataclass(frozen=True, slots=True)
class Entity:
    """Whom quotas limit: types and names, in the order of ENTITY_TYPES. A name of None is the default of its type."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, names: Mapping[str, str | None]) -> "Entity":
        """Raises InvalidQuota. Unlike in Kafka, an address must be one: host names are not resolved."""
        if not names:
            raise InvalidQuota("Invalid empty client quota entity")
        for kind, name in names.items():
            if kind not in ENTITY_TYPES:
                raise InvalidQuota(f"Unhandled client quota entity type: {kind}")
            if name == "":
                raise InvalidQuota(f"Empty {kind} not supported")
        if IP in names:
            if len(names) > 1:
                message = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
                raise InvalidQuota(message)
            _check_address(names[IP])
        return cls(tuple((kind, names[kind]) for kind in ENTITY_TYPES if kind in names))

    def __str__(self) -> str:
        """The parts as ``type=name``, with ``<default>`` for defaults."""
        return ",".join(f"{kind}={'<default>' if name is None else name}" for kind, name in self.parts)

    @property
    def of_address(self) -> bool:
        return self.parts[0][0] == IP

    def check(self, key: str, value: float) -> None:
        """Raise InvalidQuota if the entity cannot have this quota."""
        if key not in (_OF_ADDRESSES if self.of_address else _OF_CLIENTS):
            raise InvalidQuota(f"Invalid configuration key {key}")
        # Not a number is not greater than 0 either.
        if not value > 0:
            raise InvalidQuota(f"Quota {key} must be greater than 0")
        if key in _INTEGRAL:
            kind, largest = _INTEGRAL[key]
            if value > largest:
                raise InvalidQuota(f"Proposed value for {key} is too large for {_article(kind)} {kind}.")
            if math.fmod(value, 1) > _FRACTION:
                raise InvalidQuota(f"{key} cannot be a fractional value.")


def parse_address(text: str) -> Address:
    """Parse an address. As in Java, one that maps IPv4 into IPv6 is the IPv4 address. Raises ValueError."""
    parsed = ip_address(text)
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed


def _article(kind: str) -> str:
    return "an" if kind == "INT" else "a"


def _check_address(name: str | None) -> None:
    try:
        if name is not None:
            parse_address(name)
    except ValueError:
        raise InvalidQuota(f"{name} is not a valid IP or resolvable host.") from None


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects entities.

    ``names``: entity types with the required name; None: the default. ``kinds``: types that an entity must have with
    any name. ``strict``: whether an entity must have no other types.
    """

    names: Mapping[str, str | None]
    kinds: frozenset[str]
    strict: bool

    def matches(self, entity: Entity) -> bool:
        parts = dict(entity.parts)
        if any(kind not in parts or parts[kind] != name for kind, name in self.names.items()):
            return False
        if not self.kinds <= parts.keys():
            return False
        return not self.strict or len(parts) == len(self.names) + len(self.kinds)


@dataclass(frozen=True, slots=True)
class Applied:
    """The quota that applies to a client. ``shared_by``: the user and client id that share it; empty: all of them."""

    entity: Entity
    rate: float
    shared_by: tuple[str, str]


class QuotaTable:
    """All quotas, for lookups by client and by address. Immutable."""

    def __init__(self, quotas: Mapping[Entity, Limits]) -> None:
        self._clients: dict[str, dict[tuple[str | None, str | None], tuple[Entity, float]]] = {}
        self._addresses: dict[Address | None, float] = {}
        for entity, limits in quotas.items():
            parts = dict(entity.parts)
            for key, rate in limits.items():
                if entity.of_address:
                    name = parts[IP]
                    self._addresses[None if name is None else parse_address(name)] = rate
                else:
                    whom = (parts.get(USER, _NOT_NAMED), parts.get(CLIENT_ID, _NOT_NAMED))
                    self._clients.setdefault(key, {})[whom] = (entity, rate)
        self.limits_clients = bool(self._clients)
        """Whether there is any quota of users or client ids."""
        self.limits_addresses = bool(self._addresses)
        """Whether there is any quota of addresses."""

    def of_client(self, key: str, user: str, client_id: str) -> Applied | None:
        """Return the most specific quota of a client, or None if it is not limited. ``client_id`` may be empty."""
        quotas = self._clients.get(key)
        if quotas is None:
            return None
        for whom in _by_precedence(user, client_id):
            found = quotas.get(whom)
            if found is not None:
                of_user, of_client = whom
                shared_by = ("" if of_user == _NOT_NAMED else user, "" if of_client == _NOT_NAMED else client_id)
                return Applied(*found, shared_by)
        return None

    def of_address(self, address: Address) -> float | None:
        """Return the rate at which an address may connect, or None if it is not limited."""
        return self._addresses.get(address, self._addresses.get(None))


def _by_precedence(user: str, client_id: str) -> Iterable[tuple[str | None, str | None]]:
    """Yield the entities whose quotas apply to a client, the most specific one first. None is a default."""
    if not client_id:
        # As in Kafka, the default client id does not include clients without an id.
        return (user, _NOT_NAMED), (None, _NOT_NAMED)
    return (
        (user, client_id),
        (user, None),
        (user, _NOT_NAMED),
        (None, client_id),
        (None, None),
        (None, _NOT_NAMED),
        (_NOT_NAMED, client_id),
        (_NOT_NAMED, None),
    )


NO_QUOTAS = QuotaTable({})
