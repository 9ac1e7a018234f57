"""Every advertised API and version is answered, and others are refused."""

import re
import struct
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from structlog.testing import capture_logs

from kafscale_tools.documents import protocol
from services.gateway.api import Call
from services.gateway.clients import registry
from services.gateway.clients.registry import APIS
from services.gateway.clients.unsupported import UNSUPPORTED
from tests.support.gateway.advertised import ADVERTISED, EXCHANGES, closing_line
from tests.support.gateway.harness import read_response, running_gateway


@pytest.mark.parametrize(("api_key", "version"), ADVERTISED)
async def test_every_advertised_version_is_answered_completely(api_key: int, version: int) -> None:
    async with running_gateway() as harness:
        await EXCHANGES[api_key](harness, await harness.connect(), version)


async def test_the_advertised_ranges_match_the_registry() -> None:
    async with running_gateway() as harness:
        reply = await (await harness.connect()).ask(18, 0)
        advertised = [(api.api_key, v) for api in reply.api_keys for v in range(api.min_version, api.max_version + 1)]
        assert sorted(advertised) == sorted(ADVERTISED)


def test_the_advertised_versions_include_the_specified_ones() -> None:
    spec = {0: (0, 9), 1: (11, 13), 2: (0, 4), 3: (0, 12), 18: (0, 3), 19: (0, 2), 20: (0, 2)}
    for api_key, (low, high) in spec.items():
        assert set(range(low, high + 1)) <= set(APIS[api_key].versions)


@pytest.mark.parametrize("version", [5, 9, 999])
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        body = await client.call(18, version, b"\x01\x02\x03")
        reply = read_response(18, 0, body)
        assert reply.error_code == 35
        assert {api.api_key for api in reply.api_keys} == set(APIS)
        assert (await client.ask(18, 0)).error_code == 0, "the connection stays open"


@pytest.mark.parametrize(("api_key", "version"), [(9999, 0), (1, 3), (0, 14), (3, 99), (-1, 0), (24, 3), (3, -1)])
async def test_an_unsupported_request_closes_the_connection(api_key: int, version: int) -> None:
    async with running_gateway() as harness:
        client, other = await harness.connect(), await harness.connect()
        await client.stream.send_all(struct.pack(">ihhih", 30, api_key, version, 1, -1) + bytes(20))
        with pytest.raises(EOFError):
            await client.receive()
        assert (await other.ask(18, 0)).error_code == 0


SPEC_UNSUPPORTED = {4, 5, 6, 7, 21, 22, 24, 25, 26, 46, 47, 48, 49, *range(50, 58), 65, 66, 67}
SUPPORTED_NEVERTHELESS = {21, 22, 46, 47, 48, 49, 50, 51, 55, 65, 66}


def test_every_kafka_api_is_either_supported_or_documented_as_unsupported() -> None:
    assert not set(UNSUPPORTED) & set(APIS)
    assert set(APIS) >= SUPPORTED_NEVERTHELESS
    assert set(UNSUPPORTED) >= SPEC_UNSUPPORTED - SUPPORTED_NEVERTHELESS
    assert set(UNSUPPORTED) | set(APIS) >= set(api_key_map)
    documented = re.findall(r"^\| (\d+) \| (\w+) \| (\D.*) \|$", protocol.document().split("## Not supported")[1], re.M)
    assert {int(key): (name, reason) for key, name, reason in documented} == UNSUPPORTED


async def test_an_unsupported_api_closes_the_connection_and_the_reason_is_logged() -> None:
    async with running_gateway() as harness:
        for api_key, (name, reason) in UNSUPPORTED.items():
            client = await harness.connect()
            with capture_logs() as logged:
                await client.stream.send_all(struct.pack(">ihhih", 30, api_key, 0, 1, -1) + bytes(20))
                with pytest.raises(EOFError):
                    await client.receive()
                line = await closing_line(logged)
            assert line["reason"] == f"{name} ({api_key}) is not supported: {reason}"
            assert line["peer"]


@pytest.mark.parametrize(
    ("api_key", "version", "reason"),
    [
        (1, 3, "Fetch (1) version 3 is not supported: versions 4 to 18 are"),
        (9999, 2, "there is no API 9999 (version 2)"),
    ],
)
async def test_unknown_apis_and_versions_are_logged(api_key: int, version: int, reason: str) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        with capture_logs() as logged:
            await client.stream.send_all(struct.pack(">ihhih", 30, api_key, version, 1, -1) + bytes(20))
            with pytest.raises(EOFError):
                await client.receive()
            line = await closing_line(logged)
        assert line["reason"] == reason


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("ok", "a b"), ("-x", "1"), ("x-", "1")])
async def test_a_client_with_an_illegal_software_name_is_refused(name: str, version: str) -> None:
    async with running_gateway() as harness:
        reply = await (await harness.connect()).ask(18, 3, client_software_name=name, client_software_version=version)
        assert reply.error_code == 42


@pytest.mark.parametrize(("api_key", "version"), ADVERTISED)
async def test_a_failing_handler_is_answered_with_an_error_for_every_item(
    api_key: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(call: Call) -> None:
        raise KeyError("a defect")

    api = APIS[api_key]
    monkeypatch.setitem(registry.APIS, api_key, replace(api, handle=broken))
    async with running_gateway() as harness:
        await harness.topic("t")
        client, other = await harness.connect(), await harness.connect()
        with pytest.raises((AssertionError, AttributeError)):
            await EXCHANGES[api_key](harness, client, version)
        assert set(error_codes(api_key, version, client.last_reply)) == {ErrorCode.unknown_server_error}
        counters = harness.parts.counters
        assert {code for key, code in counters.errors if key == api_key} == {ErrorCode.unknown_server_error}
        assert counters.broken == {api_key: 1}
        monkeypatch.setitem(registry.APIS, api_key, api)
        assert (await client.ask(18, 0)).error_code == 0, "the connection stays open"
        assert (await other.ask(18, 0)).error_code == 0


async def test_a_handler_that_fails_later_does_not_affect_other_requests() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        harness.storage.fetch_fails = KeyError("a defect")
        client, other = await harness.connect(), await harness.connect()
        with pytest.raises(AssertionError):
            await EXCHANGES[1](harness, client, 12)
        harness.storage.fetch_fails = None
        assert (await client.ask(18, 0)).error_code == 0
        assert (await other.ask(18, 0)).error_code == 0


# The position of the error code in replies of versions that Kafka 4 removed, which kio cannot read.
OLD_ERROR_CODE_AT = {
    (0, 0): 15,
    (0, 1): 15,
    (0, 2): 15,
    (2, 0): 15,
    (19, 0): 9,
    (19, 1): 9,
    (20, 0): 7,
    (23, 0): 11,
    (23, 1): 11,
}


def error_codes(api_key: int, version: int, reply: bytes) -> Iterator[int]:
    """Yield all error codes in a reply: its own, and those of topics and partitions."""
    at = OLD_ERROR_CODE_AT.get((api_key, version))
    if at is not None:
        yield from struct.unpack_from(">h", reply, at)
        return
    waiting: list[Any] = [read_response(api_key, version, reply)]
    while waiting:
        entity = waiting.pop()
        for field in fields(entity):
            value = getattr(entity, field.name)
            if field.name == "error_code":
                yield value
            elif isinstance(value, tuple):
                waiting += filter(is_dataclass, value)


@pytest.mark.parametrize("body", [b"", b"\x00\x00", b"\xff" * 30])
async def test_a_request_that_does_not_decode_closes_only_its_own_connection(body: bytes) -> None:
    async with running_gateway() as harness:
        client, other = await harness.connect(), await harness.connect()
        await client.send(3, 9, body)
        assert await client.closed()
        assert (await other.ask(18, 0)).error_code == 0


def test_every_api_is_documented_with_its_versions() -> None:
    document = protocol.document()
    for api in APIS.values():
        assert f"## {api.name}\n\n{api.name} ({api.key}), versions {api.versions[0]} to {api.versions[-1]}" in document


def test_every_api_has_an_exchange() -> None:
    assert set(EXCHANGES) == set(APIS)
