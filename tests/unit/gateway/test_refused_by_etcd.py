"""Refusals by the metadata store, as when etcd's user lost a permission: clients retry, and one line is logged."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from kafscale.errors import Refused
from kafscale.metadata.memory import Fault
from tests.support.gateway.harness import Client, Harness, running_gateway
from tests.unit.gateway.test_configs import SET, change
from tests.unit.gateway.test_partitions import grow
from tests.unit.gateway.test_producer_ids import init
from tests.unit.gateway.test_topics import create, delete, metadata, topic

DENIED = "etcdserver: permission denied"


async def _init_producer_id(client: Client) -> ErrorCode:
    return ErrorCode((await init(client, 4))[0])


async def _metadata(client: Client) -> ErrorCode:
    there, new = (await metadata(client, ["there", "new"])).topics
    assert (there.error_code, len(there.partitions)) == (0, 1)
    return ErrorCode(new.error_code)


async def _create_topics(client: Client) -> ErrorCode:
    return ErrorCode((await create(client, topic("new"))).topics[0].error_code)


async def _delete_topics(client: Client) -> ErrorCode:
    return ErrorCode((await delete(client, ("there", None)))[0].error_code)


async def _change_configs(client: Client) -> ErrorCode:
    return ErrorCode((await change(client, ("flush.ms", SET, "1"), name="there")).error_code)


async def _create_partitions(client: Client) -> ErrorCode:
    return ErrorCode((await grow(client, "there", 2)).error_code)


def _refuse(harness: Harness, times: int, why: str = DENIED) -> None:
    harness.metadata.faults.append(Fault(method="txn", times=times, before=Refused(why)))


def _errors(logged: list[Any]) -> list[tuple[str, str]]:
    return [(line["api"], line["refused"]) for line in logged if line["log_level"] == "error"]


@pytest.mark.parametrize(
    ("api", "ask", "code"),
    [
        ("InitProducerId", _init_producer_id, ErrorCode.coordinator_load_in_progress),
        ("Metadata", _metadata, ErrorCode.leader_not_available),
        ("CreateTopics", _create_topics, ErrorCode.request_timed_out),
        ("DeleteTopics", _delete_topics, ErrorCode.request_timed_out),
        ("IncrementalAlterConfigs", _change_configs, ErrorCode.request_timed_out),
        ("CreatePartitions", _create_partitions, ErrorCode.request_timed_out),
    ],
)
async def test_a_refusal_by_the_store_is_retriable_and_logged_once(
    api: str, ask: Callable[[Client], Awaitable[ErrorCode]], code: ErrorCode
) -> None:
    async with running_gateway() as harness:
        await harness.topic("there")
        client = await harness.connect()
        _refuse(harness, times=3)
        with capture_logs() as logged:
            assert code.retriable
            assert [await ask(client) for _ in range(4)] == [code, code, code, ErrorCode.none]
        assert _errors(logged) == [(api, DENIED)]
        assert not any("exc_info" in line for line in logged)
        assert not harness.parts.counters.broken


async def test_a_refusal_is_logged_again_for_another_reason_and_after_a_success() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        _refuse(harness, times=2)
        _refuse(harness, times=1, why="etcdserver: invalid auth token")
        with capture_logs() as logged:
            for name in ("a", "a", "a", "a"):
                await create(client, topic(name))
            _refuse(harness, times=1)
            await create(client, topic("b"))
        reasons = [DENIED, "etcdserver: invalid auth token", DENIED]
        assert _errors(logged) == [("CreateTopics", why) for why in reasons]
