"""KafscaleUsers in a simulated environment: passwords, ACLs, conditions, and recovery from a stop at any step."""

import json
from typing import Any

import grpc
import pytest

from kafscale.errors import KafscaleError, Unavailable
from kafscale.rpc.errors import StatusError
from services.operator.resources import CLUSTER, SECRET, USER, USER_FINALIZER
from services.operator.users.passwords import Password
from tests.unit.operator.steps import Killed
from tests.unit.operator.world import World

_SHA_256, _SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
_OTHERS = ("TOPIC", "LITERAL", "bills", "User:bob", "*", "READ", "ALLOW")


def _acl(type_: str = "Topic", name: str = "orders", *operations: str, **more: str) -> dict[str, Any]:
    pattern = more.pop("patternType", "Literal")
    resource = {"type": type_, "patternType": pattern, **({} if type_ == "Cluster" else {"name": name})}
    return {
        "resource": resource,
        "operations": list(operations or ("Read",)),
        "host": "*",
        "permission": "Allow",
        **more,
    }


def _stored(type_: str, name: str, operation: str, permission: str = "ALLOW", pattern: str = "LITERAL") -> Any:
    return (type_, pattern, name, "User:ann", "*", operation, permission)


async def test_a_user_gets_a_generated_password_and_its_acls_and_is_then_not_changed() -> None:
    world = World()
    world.brokers.acls = {_OTHERS}
    rules = [
        _acl("Topic", "orders", "Read", "DescribeConfigs", patternType="Prefixed"),
        _acl("TransactionalId", "tx", "Write"),
        _acl("Cluster", "", "IdempotentWrite", permission="Deny"),
    ]
    world.user(authentication={}, acls=rules)
    assert await world.reconcile_user()
    data = world.secret_data("ann-credentials")
    password = data["password"]
    assert data == {
        "username": "ann",
        "password": password,
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="ann" password="{password}";',
    }
    assert len(password) == 32
    assert world.api.objects[SECRET.plural, "ann-credentials"]["metadata"]["ownerReferences"][0]["uid"] == "uid-ann"
    assert all(world.brokers.has_password("ann", mechanism, password) for mechanism in (_SHA_256, _SHA_512))
    assert world.brokers.acls == {
        _OTHERS,
        _stored("TOPIC", "orders", "READ", pattern="PREFIXED"),
        _stored("TOPIC", "orders", "DESCRIBE_CONFIGS", pattern="PREFIXED"),
        _stored("TRANSACTIONAL_ID", "tx", "WRITE"),
        _stored("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE", "DENY"),
    }
    assert {type_: each[:2] for type_, each in world.user_conditions().items()} == {
        "Ready": ("True", "Available"),
        "Synced": ("True", "AsWanted"),
    }
    status = world.all(USER)["ann"]["status"]
    known = {name: status[name] for name in ("userName", "secretName", "mechanisms", "acls", "cluster")}
    assert known == {
        "userName": "ann",
        "secretName": "ann-credentials",
        "mechanisms": [_SHA_256, _SHA_512],
        "acls": 4,
        "cluster": "main",
    }
    assert world.events == ["SecretCreated", "AclsCreated", "PasswordSet"]
    before = world.steps.done
    assert await world.reconcile_user()
    assert world.steps.done == before


async def test_the_password_is_in_no_log_event_or_status(capfd: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.user(authentication={})
    await world.reconcile_user()
    password = world.secret_data("ann-credentials")["password"]
    shown = json.dumps([each for (plural, _), each in world.api.objects.items() if plural != SECRET.plural])
    assert password not in shown
    assert password not in "".join(capfd.readouterr())
    assert password not in repr(Password(password.encode(), "1"))


async def test_a_changed_secret_changes_the_password() -> None:
    world = World()
    world.secret("of-ann", word="first")
    world.user(authentication={"passwordSecretRef": {"name": "of-ann", "key": "word"}, "mechanisms": [_SHA_512]})
    await world.reconcile_user()
    assert world.brokers.has_password("ann", _SHA_512, "first")
    assert set(world.brokers.users["ann"]) == {_SHA_512}
    world.secret("of-ann", word="second")
    await world.reconcile_user()
    assert world.brokers.has_password("ann", _SHA_512, "second")
    assert world.events == ["PasswordSet", "PasswordSet"]


async def test_a_deleted_generated_secret_is_replaced_with_a_new_password() -> None:
    world = World()
    world.user(authentication={"mechanisms": [_SHA_256]})
    await world.reconcile_user()
    former = world.secret_data("ann-credentials")["password"]
    del world.api.objects[SECRET.plural, "ann-credentials"]
    # The API server gives a new uid, this simulation does not.
    await world.reconcile_user()
    password = world.secret_data("ann-credentials")["password"]
    assert password != former
    assert world.brokers.has_password("ann", _SHA_256, password)


async def test_drift_is_repaired() -> None:
    world = World()
    world.user(authentication={}, acls=[_acl()])
    await world.reconcile_user()
    password = world.secret_data("ann-credentials")["password"]
    former = world.brokers.users["ann"][_SHA_256]
    former.salt, former.salted_password = b"other", b"other"
    del world.brokers.users["ann"][_SHA_512]
    world.brokers.acls = {_OTHERS, _stored("TOPIC", "orders", "WRITE")}
    await world.reconcile_user()
    assert all(world.brokers.has_password("ann", mechanism, password) for mechanism in (_SHA_256, _SHA_512))
    assert world.brokers.acls == {_OTHERS, _stored("TOPIC", "orders", "READ")}
    assert world.events[3:] == ["DriftRepaired", "PasswordSet", "DriftRepaired"]


async def test_mechanisms_iterations_and_acls_follow_the_resource() -> None:
    world = World()
    world.user(authentication={}, acls=[_acl(), _acl("Topic", "orders", "Write", permission="Deny")])
    await world.reconcile_user()
    world.user(authentication={"mechanisms": [_SHA_512], "iterations": 8192}, acls=[_acl("Group", "readers")])
    await world.reconcile_user()
    assert {name: each.iterations for name, each in world.brokers.users["ann"].items()} == {_SHA_512: 8192}
    assert world.brokers.acls == {_stored("GROUP", "readers", "READ")}
    assert world.all(USER)["ann"]["status"]["mechanisms"] == [_SHA_512]


async def test_a_denial_is_created_first_and_deleted_last() -> None:
    world = World()
    denial = _acl("Topic", "orders-secret", "Read", permission="Deny")
    world.user(acls=[_acl("Topic", "orders", "Read", patternType="Prefixed"), denial])
    requests: list[Any] = []
    ask = world.brokers.call

    async def call(method: Any, request: Any, **more: Any) -> Any:
        requests.append(request)
        return await ask(method, request, **more)

    world.brokers.call = call  # type: ignore[method-assign]
    await world.reconcile_user()
    created = next(each.acls for each in requests if type(each).__name__ == "CreateAclsRequest")
    assert [each.permission for each in created] == ["DENY", "ALLOW"]
    world.user()
    await world.reconcile_user()
    deleted = [each.filter.permission for each in requests if type(each).__name__ == "DeleteAclsRequest"]
    assert deleted == ["ALLOW", "DENY"]


async def test_without_authentication_only_acls_are_managed() -> None:
    world = World()
    world.user("team", name="CN=Ann,O=Sales", acls=[_acl()])
    world.brokers.users["CN=Ann,O=Sales"] = {}
    await world.reconcile_user("team")
    assert world.all(SECRET) == {}
    assert world.brokers.calls["SetUserCredentials"] == 0
    assert [acl[3] for acl in world.brokers.acls or ()] == ["User:CN=Ann,O=Sales"]
    assert world.user_conditions("team")["Synced"][:2] == ("True", "AsWanted")
    assert "secretName" not in world.all(USER)["team"]["status"]


async def test_credentials_are_deleted_when_authentication_is_removed_and_those_of_others_stay() -> None:
    world = World()
    world.user(authentication={"mechanisms": [_SHA_256]})
    await world.reconcile_user()
    world.brokers.users["ann"][_SHA_512] = world.brokers.users["ann"][_SHA_256]
    world.user()
    await world.reconcile_user()
    assert set(world.brokers.users["ann"]) == {_SHA_512}
    status = world.all(USER)["ann"]["status"]
    assert (status["mechanisms"], status.get("secretName")) == ([], None)


async def test_a_password_set_just_before_a_kill_is_deleted_when_authentication_is_removed() -> None:
    world = World()
    world.user(acls=[_acl()])
    await world.reconcile_user()
    world.secret("of-ann", password="first")
    world.user(authentication={"passwordSecretRef": {"name": "of-ann", "key": "password"}})
    # The mechanisms are stored, then the password is set, then the ACL is deleted.
    world.steps.last = world.steps.done + 2
    with pytest.raises(Killed):
        await world.reconcile_user()
    assert set(world.brokers.users["ann"]) == {_SHA_256, _SHA_512}
    world.user()
    await world.reconcile_user()
    assert world.brokers.users == {}


async def test_credentials_and_acls_are_deleted_with_the_resource() -> None:
    world = World()
    world.brokers.acls = {_OTHERS}
    world.user(authentication={"mechanisms": [_SHA_256]}, acls=[_acl()])
    await world.reconcile_user()
    world.brokers.users["ann"][_SHA_512] = world.brokers.users["ann"][_SHA_256]
    assert world.all(USER)["ann"]["metadata"]["finalizers"] == [USER_FINALIZER]
    world.api.delete(USER, "ann")
    world.unreachable = True
    with pytest.raises(Unavailable):
        await world.reconcile_user()
    assert world.user_conditions()["Synced"][:2] == ("Unknown", "ClusterUnreachable")
    world.unreachable = False
    await world.reconcile_user()
    assert (world.all(USER), world.brokers.users, world.brokers.acls) == ({}, {}, {_OTHERS})
    assert world.events[-1] == "Deleted"


@pytest.mark.parametrize("gone", ["policy", "cluster"])
async def test_a_user_is_retained_by_its_policy_or_without_its_cluster(gone: str) -> None:
    world = World()
    world.user(authentication={}, acls=[_acl()])
    await world.reconcile_user()
    if gone == "policy":
        world.user(authentication={}, acls=[_acl()], deletionPolicy="Retain")
        await world.reconcile_user()
        assert world.all(USER)["ann"]["metadata"]["finalizers"] == []
    else:
        del world.api.objects[CLUSTER.plural, "main"]
    world.api.delete(USER, "ann")
    await world.reconcile_user()
    assert world.all(USER) == {}
    assert "ann" in world.brokers.users
    assert world.brokers.acls


async def test_without_enforced_acls_the_rest_is_reconciled_and_the_condition_says_so() -> None:
    world = World()
    world.brokers.acls = None
    world.user(authentication={}, acls=[_acl()])
    await world.reconcile_user()
    assert world.brokers.has_password("ann", _SHA_256, world.secret_data("ann-credentials")["password"])
    conditions = world.user_conditions()
    assert conditions["Ready"][:2] == ("True", "Available")
    assert conditions["Synced"][:2] == ("False", "AclsNotEnforced")
    world.user(authentication={})
    await world.reconcile_user()
    assert world.user_conditions()["Synced"][:2] == ("True", "AsWanted")
    world.api.delete(USER, "ann")
    await world.reconcile_user()
    assert (world.all(USER), world.brokers.users) == ({}, {})


@pytest.mark.parametrize(
    ("data", "reason", "why"),
    [
        (None, "SecretNotFound", "the Secret of-ann does not exist"),
        ({"other": "x"}, "InvalidSecret", "the Secret of-ann has no key password"),
        ({"password": ""}, "InvalidSecret", "is empty"),
        ({"password": "hidden\n"}, "InvalidSecret", "has a line break"),
        ({"password": "x" * 1025}, "InvalidSecret", "more than 1024 bytes"),
    ],
)
async def test_without_a_usable_secret_the_acls_are_reconciled_and_the_password_stays(
    data: dict[str, str] | None, reason: str, why: str
) -> None:
    world = World()
    authentication = {"passwordSecretRef": {"name": "of-ann", "key": "password"}}
    world.secret("of-ann", password="first")
    world.user(authentication=authentication)
    await world.reconcile_user()
    del world.api.objects[SECRET.plural, "of-ann"]
    if data is not None:
        world.secret("of-ann", **data)
    world.user(authentication=authentication, acls=[_acl()])
    await world.reconcile_user()
    assert world.brokers.acls == {_stored("TOPIC", "orders", "READ")}
    assert world.brokers.has_password("ann", _SHA_256, "first")
    status, found, message = world.user_conditions()["Synced"]
    assert (status, found) == ("False", reason)
    assert why in message
    assert "hidden" not in message


async def test_a_secret_of_others_is_never_taken_for_a_generated_one() -> None:
    world = World()
    world.secret("ann-credentials", password="of others")
    world.user(authentication={})
    await world.reconcile_user()
    assert world.brokers.users == {}
    conditions = world.user_conditions()
    assert (conditions["Ready"][1], conditions["Synced"][1]) == ("Missing", "InvalidSecret")


async def test_the_secret_of_a_former_resource_is_awaited() -> None:
    world = World()
    world.user(authentication={})
    await world.reconcile_user()
    world.user(authentication={}, uid="another")
    with pytest.raises(KafscaleError, match="not deleted yet"):
        await world.reconcile_user()


async def test_an_api_server_that_refuses_the_secret_is_reported() -> None:
    world = World()
    world.api.forbidden = {"secrets"}
    world.user(authentication={}, acls=[_acl()])
    await world.reconcile_user()
    assert world.user_conditions()["Synced"][1] == "Refused"
    assert world.brokers.acls


async def test_refused_acls_are_created_when_others_were_deleted() -> None:
    world = World()
    world.user(acls=[_acl("Topic", "first")])
    await world.reconcile_user()
    world.brokers.most_acls = 1
    world.user(acls=[_acl("Topic", "second")])
    await world.reconcile_user()
    assert world.user_conditions()["Synced"][:2] == ("False", "Refused")
    await world.reconcile_user()
    assert world.brokers.acls == {_stored("TOPIC", "second", "READ")}
    assert world.user_conditions()["Synced"][:2] == ("True", "AsWanted")


async def test_the_older_of_two_resources_owns_a_user() -> None:
    world = World()
    world.user("second", made="2026-11-22T18:00:01Z", name="ann", acls=[_acl("Topic", "second")])
    world.user(acls=[_acl("Topic", "first")])
    await world.reconcile_user("second")
    assert world.user_conditions("second")["Synced"][:2] == ("False", "Conflict")
    await world.reconcile_user()
    assert world.brokers.acls == {_stored("TOPIC", "first", "READ")}


async def test_gateways_that_do_not_allow_it_are_reported() -> None:
    world = World()
    world.user(authentication={})
    world.brokers.refuses = StatusError(grpc.StatusCode.PERMISSION_DENIED, "User:ANONYMOUS needs DESCRIBE on CLUSTER")
    with pytest.raises(StatusError):
        await world.reconcile_user()
    status, reason, message = world.user_conditions()["Synced"]
    assert (status, reason) == ("Unknown", "PermissionDenied")
    assert "KAFSCALE_ADMIN_TOKEN" in message


async def test_a_name_is_quoted_in_the_configuration_of_java_clients() -> None:
    world = World()
    world.user(name='a"n\\n', authentication={})
    await world.reconcile_user()
    assert 'username="a\\"n\\\\n"' in world.secret_data("ann-credentials")["sasl.jaas.config"]


@pytest.mark.parametrize("applied", [False, True])
async def test_the_next_operator_completes_work_that_was_killed_at_any_step(applied: bool) -> None:
    """A user's life, with a kill before or after each change."""
    step, killed = 1, True
    while killed:
        world, killed = World(), False
        world.brokers.acls = {_OTHERS}
        world.steps.last, world.steps.applied = step, applied

        async def reconcile(world: World = world) -> None:
            nonlocal killed
            try:
                await world.reconcile_user()
            except Killed:
                killed = True
                await world.reconcile_user()

        world.user(authentication={}, acls=[_acl(), _acl("Group", "readers")])
        await reconcile()
        world.user(authentication={"mechanisms": [_SHA_256]}, acls=[_acl("Topic", "orders", "Read", "Write")])
        await reconcile()
        assert set(world.brokers.users["ann"]) == {_SHA_256}
        assert world.brokers.has_password("ann", _SHA_256, world.secret_data("ann-credentials")["password"])
        assert world.user_conditions()["Synced"][:2] == ("True", "AsWanted")
        world.user(acls=[_acl()])
        await reconcile()
        assert "ann" not in world.brokers.users
        world.api.delete(USER, "ann")
        await reconcile()
        assert (world.all(USER), world.brokers.acls) == ({}, {_OTHERS})
        step += 1
    assert step > 15
