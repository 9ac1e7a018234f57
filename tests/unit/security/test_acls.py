"""What ACLs allow and deny, by Kafka's rules."""

from collections.abc import Iterable

import pytest

from kafscale.security.acls import (
    CLUSTER,
    Acl,
    AclFilter,
    AclSet,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from kafscale.security.principals import EVERYBODY, Principal, user

ANN, BOB = user("ann"), user("bob")
HOST = "10.0.0.1"


def acl(
    operation: Operation,
    name: str = "orders",
    *,
    prefixed: bool = False,
    principal: Principal = ANN,
    host: str = "*",
    deny: bool = False,
    type_: ResourceType = ResourceType.TOPIC,
) -> Acl:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    return Acl(type_, pattern, name, str(principal), host, operation, permission)


def topic(name: str = "orders") -> Resource:
    return Resource(ResourceType.TOPIC, name)


READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL


@pytest.mark.parametrize(
    ("acls", "operation", "allowed"),
    [
        ([], READ, False),
        ([acl(READ)], READ, True),
        ([acl(READ)], WRITE, False),
        ([acl(ALL)], WRITE, True),
        ([acl(READ, principal=BOB)], READ, False),
        ([acl(READ, principal=EVERYBODY)], READ, True),
        ([acl(READ, host=HOST)], READ, True),
        ([acl(READ, host="10.0.0.2")], READ, False),
        ([acl(READ, "*")], READ, True),
        ([acl(READ, "ord", prefixed=True)], READ, True),
        ([acl(READ, "orders", prefixed=True)], READ, True),
        ([acl(READ, "orders2", prefixed=True)], READ, False),
        ([acl(READ, "ord")], READ, False),
        ([acl(READ, type_=ResourceType.GROUP)], READ, False),
        # A denial decides, wherever it is.
        ([acl(READ), acl(READ, "ord", prefixed=True, deny=True)], READ, False),
        ([acl(READ), acl(READ, "*", deny=True)], READ, False),
        ([acl(READ), acl(ALL, deny=True, principal=EVERYBODY)], READ, False),
        ([acl(READ), acl(WRITE, deny=True)], READ, True),
        # An allowed operation may include another one, a denied one does not.
        ([acl(READ)], DESCRIBE, True),
        ([acl(Operation.ALTER)], DESCRIBE, True),
        ([acl(Operation.CREATE)], DESCRIBE, False),
        ([acl(Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS, True),
        ([acl(DESCRIBE), acl(READ, deny=True)], DESCRIBE, True),
    ],
)
def test_decisions(acls: Iterable[Acl], operation: Operation, allowed: bool) -> None:
    assert AclSet(acls).decide(ANN, HOST, operation, topic()).allowed is allowed


def test_super_users_may_do_what_is_denied() -> None:
    acls = AclSet([acl(ALL, deny=True)], super_users={ANN})
    assert acls.decide(ANN, HOST, READ, topic()) == (True, "super user")
    assert acls.decide(ANN, HOST, Operation.ALTER, CLUSTER).allowed


def test_what_no_acl_is_about_may_be_allowed() -> None:
    acls = AclSet([acl(READ, principal=BOB)], allow_without_acl=True)
    assert not acls.decide(ANN, HOST, READ, topic()).allowed
    assert acls.decide(ANN, HOST, READ, topic("other")).allowed


def test_the_decision_names_its_rule() -> None:
    acls = AclSet([acl(READ, "ord", prefixed=True)])
    assert acls.decide(ANN, HOST, READ, topic()).rule == "ALLOW User:ann READ on PREFIXED:TOPIC:ord from host *"


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl(WRITE)], True),
        ([acl(ALL, "x", prefixed=True)], True),
        ([acl(READ)], False),
        ([acl(WRITE), acl(WRITE, deny=True)], False),
        ([acl(WRITE), acl(WRITE, "ord", prefixed=True, deny=True)], False),
        ([acl(WRITE), acl(WRITE, "ord", deny=True)], True),
        ([acl(WRITE, "or", prefixed=True), acl(WRITE, "ord", prefixed=True, deny=True)], True),
        ([acl(WRITE, "ord", prefixed=True), acl(WRITE, "ord", prefixed=True, deny=True)], False),
        ([acl(WRITE, "ord", prefixed=True), acl(WRITE, "ord", deny=True)], True),
        ([acl(WRITE, "*"), acl(WRITE, "o", prefixed=True, deny=True)], True),
        ([acl(WRITE, "*"), acl(ALL, "*", deny=True)], False),
        ([acl(WRITE, principal=BOB)], False),
    ],
)
def test_any_resource_of_a_type(acls: Iterable[Acl], allowed: bool) -> None:
    assert AclSet(acls).decide_for_any(ANN, HOST, WRITE, ResourceType.TOPIC).allowed is allowed


def test_filters_select_acls() -> None:
    exact, prefix, everything = acl(READ), acl(READ, "ord", prefixed=True), acl(WRITE, "*", principal=BOB)
    acls = (exact, prefix, everything)

    def selected(**fields: object) -> list[Acl]:
        return [each for each in acls if AclFilter(**fields).selects(each)]  # type: ignore[arg-type]

    assert selected() == [exact, prefix, everything]
    assert selected(name="orders") == [exact]
    assert selected(name="orders", matching=True) == [exact, prefix, everything]
    assert selected(name="other", matching=True) == [everything]
    assert selected(pattern_type=PatternType.PREFIXED) == [prefix]
    assert selected(principal="User:bob") == [everything]
    assert selected(operation=WRITE, permission=Permission.DENY) == []
