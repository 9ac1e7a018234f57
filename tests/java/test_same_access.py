"""Apache Kafka and KafScale with the same users and ACLs get the same requests and must allow the same.

Each user has one operation on each resource of one type. The replies are compared by their error codes, by the names in
them, and by the authorized operations.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import trio

from kafscale.security.acls import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from kafscale.security.scram import Mechanism, salted_password
from services.gateway.clients.registry import APIS
from tests.java.access_requests import BY_ID, INIT_PRODUCER_ID, PRODUCE, REQUESTS, metadata
from tests.java.against import CLOSED, encoded, plain
from tests.java.answer_cases import SECONDS_5
from tests.servers.apache_kafka import apache_kafka
from tests.support.broker import KafscaleBroker
from tests.support.gateway.harness import Client, read_response

ADMIN = "admin"
NOBODY = "nobody"
EVERYTHING = "everything"
NAMES = {
    ResourceType.TOPIC: ("t", "gone"),
    ResourceType.GROUP: ("g",),
    ResourceType.CLUSTER: (CLUSTER_NAME,),
    ResourceType.TRANSACTIONAL_ID: ("x",),
}
"""The resources that requests name. The topic ``t`` exists, ``hidden`` too, and no ACL is about it."""
LITERAL, ALLOW, DENY = 3, 3, 2


@dataclass(frozen=True)
class User:
    """``acls``: type, name, operation and permission of each."""

    name: str
    acls: tuple[tuple[ResourceType, str, Operation, int], ...] = ()


def _users() -> Iterator[User]:
    yield User(NOBODY)
    for type_, names in NAMES.items():
        # TWO_PHASE_COMMIT is newer than the transactions that Kafka's clients use.
        for operation in sorted({Operation.ALL, *OPERATIONS[type_]} - {Operation.TWO_PHASE_COMMIT}):
            user = f"{type_.name}-{operation.name}".lower().replace("_", "-")
            yield User(user, tuple((type_, name, operation, ALLOW) for name in names))
    everything = tuple((type_, name, Operation.ALL, ALLOW) for type_, names in NAMES.items() for name in names)
    yield User(EVERYTHING, everything)
    # An operation that another one includes is not denied with it, but the other way round it is.
    yield User("all-but-read", (*everything, (ResourceType.TOPIC, "t", Operation.READ, DENY)))
    yield User("all-but-describe", (*everything, (ResourceType.TOPIC, "t", Operation.DESCRIBE, DENY)))


USERS = tuple(_users())


def acl(user: str, type_: ResourceType, name: str, operation: Operation, permission: int) -> dict[str, Any]:
    return {
        "resource_type": type_,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": f"User:{user}",
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


class Session:
    """A connection of a user that stays open, or is opened again if the broker closes it."""

    def __init__(self, bootstrap: str, user: str, ids: Mapping[UUID, UUID]) -> None:
        self._bootstrap, self._user = bootstrap, user
        self._ids = ids
        self._client: Client | None = None

    async def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        if self._client is None:
            host, _, port = self._bootstrap.partition(":")
            self._client = Client(await trio.open_tcp_stream(host, int(port)))
            await self._ask(17, 1, {"mechanism": "PLAIN"})
            reply = await self._ask(36, 2, {"auth_bytes": f"\0{self._user}\0{self._user}".encode()})
            assert reply["error_code"] == 0, reply
        try:
            reply = await self._ask(api_key, version, _replaced(values, self._ids))
            return _replaced(reply, {own: known for known, own in self._ids.items()})
        except (EOFError, trio.BrokenResourceError):
            await self.close()
            return CLOSED

    async def _ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        assert self._client is not None
        body = await self._client.call(api_key, version, encoded(api_key, version, values))
        return plain(read_response(api_key, version, body))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.stream.aclose()
        self._client = None


def _replaced(values: Any, ids: Mapping[UUID, UUID]) -> Any:
    if isinstance(values, Mapping):
        return {name: _replaced(value, ids) for name, value in values.items()}
    if isinstance(values, list):
        return [_replaced(value, ids) for value in values]
    return ids.get(values, values) if isinstance(values, UUID) else values


@asynccontextmanager
async def session(bootstrap: str, user: str, ids: Mapping[UUID, UUID] | None = None) -> AsyncIterator[Session]:
    made = Session(bootstrap, user, ids or {})
    try:
        yield made
    finally:
        await made.close()


@dataclass(frozen=True)
class Brokers:
    """Their addresses, and the topic ids of each for those in requests."""

    apache: str
    kafscale: str
    ids: Mapping[str, Mapping[UUID, UUID]]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    directory = tmp_path_factory.mktemp("access")
    names = [ADMIN, *(user.name for user in USERS)]
    passwords = " ".join(f'user_{name}="{name}"' for name in names)
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{ADMIN}"'
    properties = [
        "group.coordinator.rebalance.protocols=classic",
        "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        f'listener.name.plaintext.plain.sasl.jaas.config={login} password="{ADMIN}" {passwords};',
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:{ADMIN};User:ANONYMOUS",
        "auto.create.topics.enable=false",
    ]
    settings = {
        "KAFSCALE_BROKER_ID": "1",
        "KAFSCALE_AUTO_CREATE_TOPICS": "false",
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:SASL_PLAINTEXT",
        "KAFSCALE_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFSCALE_BOOTSTRAP_USER": ADMIN,
        "KAFSCALE_BOOTSTRAP_PASSWORD": ADMIN,
        "KAFSCALE_ACLS": "true",
        "KAFSCALE_SUPER_USERS": f"User:{ADMIN}",
    }
    with ExitStack() as stack:
        kafscale = KafscaleBroker(directory / "kafscale", settings)
        stack.callback(kafscale.stop)
        apache = stack.enter_context(apache_kafka(directory / "apache", heap="512m", properties=properties))
        ids = {
            bootstrap: trio.run(partial(_prepare, bootstrap, makes_users=bootstrap == kafscale.bootstrap))
            for bootstrap in (apache.bootstrap, kafscale.bootstrap)
        }
        yield Brokers(apache.bootstrap, kafscale.bootstrap, ids)


async def _prepare(bootstrap: str, *, makes_users: bool) -> dict[UUID, UUID]:
    """Create the topics, the ACLs and, if that is needed, the users. Return the ids of the topics."""
    async with session(bootstrap, ADMIN) as admin:
        if makes_users:
            new = [
                {
                    "name": user.name,
                    "mechanism": 1,
                    "iterations": 4096,
                    "salt": b"salt",
                    "salted_password": salted_password(Mechanism.SHA_256, user.name.encode(), b"salt", 4096),
                }
                for user in USERS
            ]
            reply = await admin.ask(51, 0, {"deletions": [], "upsertions": new})
            assert {each["error_code"] for each in reply["results"]} == {0}
        topics: list[dict[str, Any]] = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in ("t", "hidden")
        ]
        reply = await admin.ask(19, 7, {"topics": topics, "timeout": SECONDS_5, "validate_only": False})
        assert {each["error_code"] for each in reply["topics"]} == {0}
        creations = [acl(user.name, *each) for user in USERS for each in user.acls]
        reply = await admin.ask(30, 3, {"creations": creations})
        assert {each["error_code"] for each in reply["results"]} == {0}
        with trio.fail_after(60):
            # Kafka's broker loads what the controller has written, and coordinators, after a moment.
            while await _unready(admin):  # noqa: ASYNC110  the broker tells nobody
                await trio.sleep(0.2)
        described = (await admin.ask(3, 12, metadata("t", "hidden")))["topics"]
        return {BY_ID[each["name"]]: each["topic_id"] for each in described}


async def _unready(admin: Session) -> bool:
    (group,) = (await admin.ask(10, 4, {"key_type": 0, "coordinator_keys": ["g"]}))["coordinators"]
    described = await admin.ask(15, 5, {"groups": ["g"], "include_authorized_operations": False})
    produced = await admin.ask(0, 9, PRODUCE)
    started = await admin.ask(22, 4, INIT_PRODUCER_ID)
    await admin.ask(10, 4, {"key_type": 1, "coordinator_keys": ["x"]})
    transaction = (await admin.ask(65, 0, {"transactional_ids": ["x"]}))["transaction_states"][0]["error_code"]
    codes = (
        group["error_code"],
        described["groups"][0]["error_code"],
        started["error_code"],
        transaction.retriable,
        produced["responses"][0]["partition_responses"][0]["error_code"],
    )
    return any(codes)


WITHOUT = {17, 18, 36}
"""APIs that everybody may use."""
NAMING = frozenset(("name", "topic", "group_id", "key", "transactional_id", "resource_name", "user"))


def test_every_api_is_asked() -> None:
    # ConsumerGroupHeartbeat is refused by both, and DescribeQuorum by KafScale, before anything is asked.
    assert {request.api_key for request in REQUESTS} | WITHOUT | {55, 68} == set(APIS)


def allowed(reply: Any) -> Any:
    """Return error codes, names and authorized operations, without the rest."""
    if isinstance(reply, list):
        return sorted((allowed(item) for item in reply), key=repr)
    if not isinstance(reply, Mapping):
        return reply if reply == CLOSED else None
    kept = {}
    for name, value in reply.items():
        if name == "configs":
            # Which configs there are differs.
            kept[name] = bool(value)
        elif isinstance(value, list | Mapping) and value:
            kept[name] = allowed(value)
        elif name in NAMING or value in BY_ID.values() or name.endswith(("error_code", "authorized_operations")):
            kept[name] = value
    return kept


async def _ask_all(brokers: Brokers, user: User) -> list[str]:
    """Return what differs."""
    differences = []
    async with (
        session(brokers.apache, user.name, brokers.ids[brokers.apache]) as apache,
        session(brokers.kafscale, user.name, brokers.ids[brokers.kafscale]) as kafscale,
    ):
        for request in REQUESTS:
            for version in request.versions or (APIS[request.api_key].versions[-1],):
                replies = [
                    allowed(await each.ask(request.api_key, version, request.values)) for each in (apache, kafscale)
                ]
                if replies[0] != replies[1]:
                    differences.append(f"{request.name} {version}:\n  {replies[0]}\n  {replies[1]}")
    return differences


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_kafka_and_kafscale_allow_the_same(brokers: Brokers, user: User) -> None:
    differences = trio.run(_ask_all, brokers, user)
    if differences:
        pytest.fail("\n".join(differences), pytrace=False)
