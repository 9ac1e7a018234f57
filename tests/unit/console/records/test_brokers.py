"""With whose rights the console reads and writes records."""

from typing import Any

import pytest

from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.errors import Unavailable
from kafscale.kafka_client import client
from kafscale.kafka_client.connection import Address, Security
from kafscale.kafka_client.requests import SASL_HANDSHAKE
from kafscale.v1 import admin_pb2 as pb
from services.console.records.brokers import BrokerAccess
from services.console.records.errors import RecordsRefused

OWN = KafkaClientSettings(protocol="SASL_PLAINTEXT", user="console", password="the-password-of-the-console")


class Gateways:
    """They report these members."""

    def __init__(self, *members: pb.ClusterMember) -> None:
        self._members = members
        self.tokens: list[str] = []

    async def read(self, _: object, __: object, token: str) -> pb.ClusterStatusReply:
        self.tokens.append(token)
        return pb.ClusterStatusReply(members=self._members)


def access(gateways: Gateways, *bootstrap: str, own_token: str = "own") -> BrokerAccess:
    return BrokerAccess(bootstrap, OWN, gateways, own_token=own_token, seconds=1)  # type: ignore[arg-type]


async def login(found: BrokerAccess, token: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, bytes]:
    """Return with what the broker is connected to, for a session with this token."""
    used: list[Security] = []

    async def connect(_: Address, security: Security) -> Any:
        used.append(security)
        raise Unavailable("not there")

    monkeypatch.setattr(client, "connect", connect)
    async with await found.brokers(token) as brokers:
        with pytest.raises(Unavailable):
            await brokers.leaders("t")
    assert used[0].login is not None
    return used[0].login.mechanism, used[0].login.user, used[0].login.password


@pytest.mark.parametrize("own_token", ["", "own"])
async def test_users_with_tokens_of_the_issuer_never_get_the_login_of_the_console(
    own_token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = access(Gateways(), "127.0.0.1:1", own_token=own_token)
    own = ("SCRAM-SHA-512", "console", b"the-password-of-the-console")
    assert await login(found, own_token, monkeypatch) == own
    assert await login(found, "a.user.token", monkeypatch) == ("OAUTHBEARER", "", b"a.user.token")
    # The gateways may accept a token that the console does not have.
    with pytest.raises(RecordsRefused, match="KAFSCALE_ADMIN_TOKEN"):
        await found.brokers("the-token-of-gateways")


@pytest.mark.parametrize(
    ("client", "bootstrap", "is_sent"),
    [
        (KafkaClientSettings(), ("127.0.0.1:1", "[::1]:1", "localhost:1"), True),
        (KafkaClientSettings(), ("127.0.0.1:1", "kafka.example:1"), False),
        (KafkaClientSettings(), (), False),
        (KafkaClientSettings(protocol="SSL"), ("kafka.example:1",), True),
        (OWN, ("kafka.example:1",), True),
    ],
)
async def test_a_users_token_leaves_the_host_with_encryption_only_unless_the_protocol_is_set(
    client: KafkaClientSettings, bootstrap: tuple[str, ...], is_sent: bool
) -> None:
    gateways: Any = Gateways(pb.ClusterMember(listeners=["PLAINTEXT://kafka.example:1"]))
    found = BrokerAccess(bootstrap, client, gateways, own_token="own", seconds=1)
    await found.brokers("own")
    if is_sent:
        await found.brokers("a.user.token")
        return
    with pytest.raises(RecordsRefused, match="example:1 without encryption"):
        await found.brokers("a.user.token")


async def test_a_users_token_is_not_sent_to_a_host_that_a_listener_on_this_machine_names() -> None:
    found = BrokerAccess(("127.0.0.1:1",), KafkaClientSettings(), Gateways(), own_token="own", seconds=1)  # type: ignore[arg-type]
    brokers = await found.brokers("a.user.token")
    brokers._known = {0: ("192.0.2.1", 9092)}
    with pytest.raises(Unavailable, match=r"192\.0\.2\.1:9092 without encryption"):
        await brokers.ask(0, SASL_HANDSHAKE, {"mechanism": "PLAIN"})


async def test_without_the_setting_the_reported_listeners_are_used_and_without_any_it_is_named() -> None:
    members = [
        pb.ClusterMember(listeners=["PLAINTEXT://a:1", "SSL://a:2"]),
        pb.ClusterMember(listeners=["PLAINTEXT://b:1"], leaving=True),
        pb.ClusterMember(),
        pb.ClusterMember(listeners=["PLAINTEXT://[::1]:3"]),
    ]
    gateways = Gateways(*members)
    assert await access(gateways).addresses("token") == [("a", 1), ("::1", 3)]
    assert gateways.tokens == ["token"]
    assert await access(gateways, "c:4").addresses("token") == [("c", 4)]
    with pytest.raises(Unavailable, match="KAFSCALE_CONSOLE_BOOTSTRAP"):
        await access(Gateways()).addresses("token")
