"""Log lines of requests and replies at level debug."""

from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from kafscale.kafka.connection import ReplySlot
from kafscale.kafka.schema_reader import entity_reader
from services.gateway.api import Api
from services.gateway.clients.registry import APIS
from services.gateway.clients.wire_log import WireLog
from tests.support.gateway.asking import fetch, produce, produce_body
from tests.support.gateway.fake_coordinator import FakeCoordinator
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import Cluster, batch, running_gateway

NOT_IN_KIO = {(0, 0), (0, 1), (0, 2), (2, 0), (19, 0), (19, 1), (20, 0), (23, 0), (23, 1)}
"""API and version. Their log lines lack partitions and errors."""


async def cluster(*, log_requests: bool = True) -> Cluster:
    made = Cluster()
    made.log_requests = log_requests
    await made.add("storage", FakeStorage())
    await made.add_coordinator("coordinator", FakeCoordinator())
    return made


def lines(logs: Any) -> list[dict[str, Any]]:
    return [entry for entry in logs if entry["log_level"] == "debug" and entry["event"] in ("request", "reply")]


async def test_each_request_and_reply_is_logged_on_one_line() -> None:
    async with running_gateway(cluster=await cluster()) as harness:
        await harness.topic("t", 2)
        client = await harness.connect()
        with capture_logs() as logs:
            body = produce_body({("t", 0): batch(b"v"), ("unknown", 7): batch(b"v")})
            await client.call(0, 9, body)
        peer = str(client.stream.socket.getsockname())
        same = {"log_level": "debug", "peer": peer, "api": "Produce", "version": 9, "correlation_id": 1}
        same |= {"client_id": "test", "partitions": 2}
        request_line, reply_line = lines(logs)
        header = 2 + 2 + 4 + 2 + len("test") + 1
        assert request_line == same | {"event": "request", "bytes": header + len(body)}
        assert reply_line.pop("bytes") == len(client.last_reply) + 4 + 4 + 1
        assert reply_line == same | {"event": "reply", "errors": {"UNKNOWN_TOPIC_OR_PARTITION": 1}}


async def test_the_configured_number_of_bytes_is_logged_in_hexadecimal() -> None:
    async with running_gateway(cluster=await cluster(), log_hex_bytes=3) as harness:
        client = await harness.connect()
        with capture_logs() as logs:
            await client.ask(18, 3, client_software_name="ab", client_software_version="1")
        assert [entry["hex"] for entry in lines(logs)] == ["03 61 62", client.last_reply[:3].hex(" ")]


async def test_requests_without_a_reply_and_of_unknown_versions_are_logged() -> None:
    async with running_gateway(cluster=await cluster()) as harness:
        await harness.topic()
        client = await harness.connect()
        with capture_logs() as logs:
            await client.send(0, 9, produce_body({("t", 0): batch(b"v")}, acks=0))
            await client.send(18, 127, b"")
            await client.receive_frame()
        assert [(entry["event"], entry["api"], entry.get("errors")) for entry in lines(logs)] == [
            ("request", "Produce", None),
            ("reply", "Produce", None),
            ("request", "ApiVersions", None),
            ("reply", "ApiVersions", {ErrorCode.unsupported_version.name.upper(): 1}),
        ]


async def test_nothing_is_computed_for_the_log_at_other_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: object) -> ReplySlot:
        raise AssertionError

    monkeypatch.setattr(WireLog, "__init__", made)
    async with running_gateway(cluster=await cluster(log_requests=False)) as harness:
        await harness.topic()
        client = await harness.connect()
        await produce(client, batch(b"v"))
        with capture_logs() as logs:
            await fetch(client, {("t", 0): 0})
        assert not lines(logs)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_replies_of_every_api_are_readable(api: Api) -> None:
    for version in api.versions:
        if (api.key, version) not in NOT_IN_KIO:
            entity_reader(load_response_schema(api.key, version))
