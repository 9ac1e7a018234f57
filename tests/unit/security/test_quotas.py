"""Which quota applies to a client, and which entities, keys and values are valid."""

import math
from collections.abc import Mapping
from ipaddress import ip_address
from itertools import combinations

import pytest

from kafscale.security.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Applied,
    Entity,
    Filter,
    InvalidQuota,
    QuotaTable,
)

PRECEDENCE: list[tuple[dict[str, str | None], tuple[str, str]]] = [
    ({"user": "ann", "client-id": "app"}, ("ann", "app")),
    ({"user": "ann", "client-id": None}, ("ann", "app")),
    ({"user": "ann"}, ("ann", "")),
    ({"user": None, "client-id": "app"}, ("ann", "app")),
    ({"user": None, "client-id": None}, ("ann", "app")),
    ({"user": None}, ("ann", "")),
    ({"client-id": "app"}, ("", "app")),
    ({"client-id": None}, ("", "app")),
]
"""Kafka's order, each with who shares the quota that applies to the user ann with the client id app."""


def table(*entities: Mapping[str, str | None], key: str = PRODUCER_BYTE_RATE) -> QuotaTable:
    """Quotas with a rate of 1, 2 and so on."""
    return QuotaTable({Entity.of(names): {key: float(rate)} for rate, names in enumerate(entities, 1)})


def test_the_most_specific_quota_applies() -> None:
    for size in range(1, len(PRECEDENCE) + 1):
        for places in combinations(range(len(PRECEDENCE)), size):
            # In the reverse order, so that the order of definition does not matter.
            names = [PRECEDENCE[place][0] for place in reversed(places)]
            others = ({"user": "bob", "client-id": "app"}, {"user": "bob"}, {"client-id": "other"})
            found = table(*names, *others).of_client(PRODUCER_BYTE_RATE, "ann", "app")
            expected, shared_by = PRECEDENCE[places[0]]
            assert found == Applied(Entity.of(expected), float(size), shared_by)


def test_no_quota_of_others_and_of_other_keys_applies() -> None:
    others = table({"user": "bob"}, {"client-id": "other"}, {"user": "ann", "client-id": "other"}, {"ip": None})
    assert others.of_client(PRODUCER_BYTE_RATE, "ann", "app") is None
    # An entity without a quota of this key does not hide a less specific one that has it.
    specific, general = Entity.of({"user": "ann", "client-id": "app"}), Entity.of({"client-id": None})
    both = QuotaTable({specific: {CONSUMER_BYTE_RATE: 1.0}, general: {PRODUCER_BYTE_RATE: 2.0}})
    found = both.of_client(PRODUCER_BYTE_RATE, "ann", "app")
    assert found is not None
    assert (found.entity, found.rate) == (general, 2.0)


def test_a_client_without_an_id_has_only_quotas_of_users() -> None:
    every = table(*(names for names, _ in PRECEDENCE))
    found = every.of_client(PRODUCER_BYTE_RATE, "ann", "")
    assert found == Applied(Entity.of({"user": "ann"}), 3.0, ("ann", ""))
    found = every.of_client(PRODUCER_BYTE_RATE, "bob", "")
    assert found == Applied(Entity.of({"user": None}), 6.0, ("bob", ""))
    assert table({"client-id": None}, {"user": None, "client-id": None}).of_client(PRODUCER_BYTE_RATE, "a", "") is None


def test_the_rate_of_an_address() -> None:
    rates = table({"ip": "10.0.0.1"}, {"ip": "2001:DB8::1"}, {"ip": None}, key=CONNECTION_CREATION_RATE)
    found = [rates.of_address(ip_address(each)) for each in ("10.0.0.1", "2001:db8:0::1", "10.0.0.2")]
    assert found == [1.0, 2.0, 3.0]
    assert table({"ip": "::ffff:10.0.0.1"}, key=CONNECTION_CREATION_RATE).of_address(ip_address("10.0.0.1")) == 1.0
    assert table({"ip": "10.0.0.1"}, key=CONNECTION_CREATION_RATE).of_address(ip_address("10.0.0.2")) is None


USER, ADDRESS = Entity.of({"user": "ann"}), Entity.of({"ip": None})


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        (USER, "bytes", 1.0, "Invalid configuration key bytes"),
        (USER, CONNECTION_CREATION_RATE, 1.0, "Invalid configuration key connection_creation_rate"),
        (ADDRESS, PRODUCER_BYTE_RATE, 1.0, "Invalid configuration key producer_byte_rate"),
        (USER, PRODUCER_BYTE_RATE, 0.0, "Quota producer_byte_rate must be greater than 0"),
        (USER, REQUEST_PERCENTAGE, -1.0, "Quota request_percentage must be greater than 0"),
        (USER, CONTROLLER_MUTATION_RATE, math.nan, "Quota controller_mutation_rate must be greater than 0"),
        (USER, CONSUMER_BYTE_RATE, 1.5, "consumer_byte_rate cannot be a fractional value."),
        (USER, CONSUMER_BYTE_RATE, 1e19, "Proposed value for consumer_byte_rate is too large for a LONG."),
        (
            ADDRESS,
            CONNECTION_CREATION_RATE,
            3e9,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_invalid_quotas_are_refused(entity: Entity, key: str, value: float, message: str) -> None:
    with pytest.raises(InvalidQuota) as refused:
        entity.check(key, value)
    assert str(refused.value) == message


def test_valid_quotas() -> None:
    for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE):
        USER.check(key, 1e15)
    USER.check(REQUEST_PERCENTAGE, 0.5)
    USER.check(PRODUCER_BYTE_RATE, 5.0000001)
    ADDRESS.check(CONNECTION_CREATION_RATE, 2**31 - 1)


@pytest.mark.parametrize(
    "names",
    [{}, {"team": "a"}, {"user": ""}, {"ip": "127.0.0.1", "user": None}, {"ip": "host.example.org"}, {"ip": "1.2.3"}],
)
def test_invalid_entities_are_refused(names: dict[str, str | None]) -> None:
    with pytest.raises(InvalidQuota):
        Entity.of(names)


def test_filters() -> None:
    entities = {
        "ann": Entity.of({"user": "ann"}),
        "default": Entity.of({"user": None}),
        "both": Entity.of({"user": "ann", "client-id": "app"}),
        "app": Entity.of({"client-id": "app"}),
    }

    def found(names: dict[str, str | None], kinds: set[str], *, strict: bool) -> set[str]:
        wanted = Filter(names, frozenset(kinds), strict)
        return {name for name, entity in entities.items() if wanted.matches(entity)}

    assert found({}, set(), strict=False) == set(entities)
    assert found({}, set(), strict=True) == set()
    assert found({"user": "ann"}, set(), strict=False) == {"ann", "both"}
    assert found({"user": "ann"}, set(), strict=True) == {"ann"}
    assert found({"user": None}, set(), strict=False) == {"default"}
    assert found({}, {"user"}, strict=False) == {"ann", "default", "both"}
    assert found({}, {"user"}, strict=True) == {"ann", "default"}
    assert found({"client-id": "app"}, {"user"}, strict=True) == {"both"}
