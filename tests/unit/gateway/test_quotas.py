"""Client quotas: throttle times in responses, muted connections, and what clients share."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import Any

import pytest
import trio
from kio.schema.errors import ErrorCode
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.metadata.interface import Put
from kafscale.metadata.members import Members
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.quotas import QuotaCatalog
from kafscale.security.principals import user
from kafscale.security.quotas import Entity, QuotaTable
from kafscale.v1.metadata_pb2 import Member
from services.gateway.counters import MOST_ENTITIES, OTHER_ENTITIES, GatewayCounters
from services.gateway.quotas.enforcement import Charge, Quotas
from services.gateway.quotas.metering import metered
from tests.support.gateway.asking import fetch_body, parts, produce_body
from tests.support.gateway.exchanges import nested
from tests.support.gateway.harness import NAMESPACE, Client, Harness, batch, read_response, running_gateway

ANONYMOUS = {"user": "ANONYMOUS"}
ANN = {"user": "ann"}
SECONDS_5 = timedelta(seconds=5)


def gateway() -> AbstractAsyncContextManager[Harness]:
    """A gateway whose link to storage survives when the clock is moved on."""
    return running_gateway(commit_silence_ms=600_000)


async def limit(harness: Harness, names: Mapping[str, str | None], **limits: float) -> None:
    await harness.parts.quotas.change(Entity.of(names), lambda _: limits)


async def produce(client: Client, size: int, *, acks: int = -1) -> int:
    """Produce a batch, and return the throttle time in ms."""
    reply = read_response(0, 9, await client.call(0, 9, produce_body({("t", 0): batch(b"x" * size)}, acks=acks)))
    assert reply.responses[0].partition_responses[0].error_code == 0
    return _ms(reply)


async def fetch(client: Client, **options: Any) -> Any:
    return read_response(1, 12, await client.call(1, 12, fetch_body({("t", 0): 0}, **options)))


def _ms(reply: Any) -> int:
    return int(reply.throttle_time / timedelta(milliseconds=1))


class Asking:
    """A request that is sent at once and whose reply is received in the background."""

    def __init__(self, harness: Harness, client: Client) -> None:
        self.answered = False
        self._client = client
        harness.nursery.start_soon(self._ask)

    async def _ask(self) -> None:
        await self._client.send(18, 0, b"")
        with suppress(trio.ClosedResourceError):  # the test is over
            # Without a timeout, because the clock is moved on meanwhile.
            await self._client.stream.receive_some()
            self.answered = True


async def settled() -> None:
    await wait_all_tasks_blocked(0.02)


async def test_a_producer_over_its_quota_is_answered_at_once_and_muted_for_the_throttle_time(
    mock_clock: MockClock,
) -> None:
    async with gateway() as harness:
        topic = await harness.topic()
        await limit(harness, ANONYMOUS, producer_byte_rate=1000)
        client = await harness.connect()
        assert await produce(client, 5_000) == 0
        throttle_ms = await produce(client, 15_000)
        # About 20,400 bytes in the window of ten seconds.
        assert 10_000 < throttle_ms < 11_000
        assert harness.partition(topic).high_watermark == 2, "a request over the quota is appended"
        asking = Asking(harness, client)
        await settled()
        mock_clock.jump(throttle_ms / 1000 - 0.01)
        await settled()
        assert not asking.answered
        mock_clock.jump(0.02)
        await settled()
        assert asking.answered
        entity = f"user={ANONYMOUS['user']}"
        counters = harness.parts.counters
        assert counters.throttled_requests == {("producer_byte_rate", entity): 1}
        assert counters.throttle_seconds["producer_byte_rate", entity] == pytest.approx(throttle_ms / 1000)


@pytest.mark.parametrize("acks", [0, 1])
async def test_every_connection_of_a_client_shares_its_quota(mock_clock: MockClock, acks: int) -> None:
    async with gateway() as harness:
        await harness.topic()
        await limit(harness, ANONYMOUS, producer_byte_rate=1000)
        first, second, other = await harness.connect(), await harness.connect(), await harness.connect()
        # The quota of a user without a client id is shared by all its client ids.
        second.client_id = "another"
        await first.send(0, 9, produce_body({("t", 0): batch(b"x" * 30_000)}, acks=acks))
        await settled()
        assert await produce(second, 10) > 15_000
        asking = [Asking(harness, client) for client in (second, other)]
        await settled()
        assert [each.answered for each in asking] == [False, True], "requests that the quota does not limit are served"


async def test_client_ids_with_a_default_quota_do_not_share_it(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        await harness.topic()
        await limit(harness, {"client-id": None}, producer_byte_rate=1000)
        await limit(harness, {"client-id": "free"}, producer_byte_rate=1e9)
        clients = []
        for name in ("one", "two", "free", None):
            clients.append(await harness.connect())
            clients[-1].client_id = name
        assert await produce(clients[0], 30_000) > 15_000
        assert [await produce(client, 5_000) for client in clients[1:]] == [0, 0, 0]
        same = await harness.connect()
        same.client_id = "one"
        assert await produce(same, 10) > 15_000


async def test_requests_that_arrived_before_the_client_was_muted_wait_too(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        topic = await harness.topic()
        await limit(harness, ANONYMOUS, producer_byte_rate=1000)
        client = await harness.connect()
        for _ in range(3):
            await client.send(0, 9, produce_body({("t", 0): batch(b"x" * 12_000)}))
        await settled()
        assert harness.partition(topic).high_watermark == 1
        mock_clock.jump(3)
        await settled()
        assert harness.partition(topic).high_watermark == 2


async def test_a_fetch_over_the_quota_gets_nothing_and_its_bytes_are_not_counted(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        for _ in range(2):
            await produce(client, 6_000)
        await limit(harness, ANONYMOUS, consumer_byte_rate=1000)
        reply = await fetch(client, partition_max_bytes=6_100)
        assert (_ms(reply), len(parts(reply)[0].records)) == (0, len(batch(b"x" * 6_000)))
        reply = await fetch(client, partition_max_bytes=6_100)
        throttle_ms = _ms(reply)
        assert (reply.error_code, reply.responses) == (0, ())
        assert 2_000 < throttle_ms < 2_500
        reply = await fetch(await harness.connect(), partition_max_bytes=6_100)
        assert (_ms(reply), reply.responses) == (throttle_ms, ())
        mock_clock.jump(11)
        reply = await fetch(client, partition_max_bytes=6_100)
        assert (_ms(reply), len(parts(reply))) == (0, 1)


async def test_one_fetch_gets_at_most_what_the_quota_allows_in_its_window(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        for _ in range(5):
            await produce(client, 3_000)
        await limit(harness, ANONYMOUS, consumer_byte_rate=1000)
        reply = await fetch(client)
        size = len(batch(b"x" * 3_000))
        assert (_ms(reply), len(parts(reply)[0].records)) == (0, 3 * size)


async def test_a_batch_that_exceeds_the_quota_alone_is_returned(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        await produce(client, 40_000)
        await limit(harness, ANONYMOUS, consumer_byte_rate=1000)
        reply = await fetch(client)
        assert len(parts(reply)[0].records) > 40_000
        assert _ms(reply) > 30_000


async def test_a_throttled_fetch_keeps_its_session(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        await produce(client, 6_000)
        opened = await fetch(client, session_epoch=0, partition_max_bytes=6_100)
        assert opened.session_id
        await limit(harness, ANONYMOUS, consumer_byte_rate=1000)
        ask = {"session_id": opened.session_id, "partition_max_bytes": 6_100}
        assert _ms(await fetch(client, session_epoch=1, **ask)) == 0
        reply = await fetch(client, session_epoch=2, **ask)
        assert (_ms(reply) > 0, reply.error_code, reply.session_id, reply.responses) == (True, 0, opened.session_id, ())
        mock_clock.jump(11)
        reply = await fetch(client, session_epoch=3, **ask)
        assert (_ms(reply), reply.error_code, len(parts(reply))) == (0, 0, 1)
        # A full request begins no session while it is throttled.
        reply = await fetch(client, session_epoch=0, partition_max_bytes=6_100)
        assert (_ms(reply) > 0, reply.error_code, reply.session_id, reply.responses) == (True, 0, 0, ())


async def create(client: Client, name: str, partitions: int, version: int, *, validate_only: bool = False) -> Any:
    topic = nested(19, version, "CreatableTopic")(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    return await client.ask(19, version, topics=(topic,), timeout=SECONDS_5, validate_only=validate_only)


async def grow(client: Client, name: str, count: int, version: int) -> Any:
    topic = nested(37, version, "CreatePartitionsTopic")(name=name, count=count, assignments=None)
    return await client.ask(37, version, topics=(topic,), timeout=SECONDS_5, validate_only=False)


async def test_changes_of_partitions_over_the_quota_are_refused_in_versions_that_know_the_error(
    mock_clock: MockClock,
) -> None:
    exceeded = ErrorCode.throttling_quota_exceeded
    async with gateway() as harness:
        await limit(harness, ANONYMOUS, controller_mutation_rate=1)
        client = await harness.connect()
        assert (await create(client, "a", 50, 7, validate_only=True)).topics[0].error_code == 0
        # The bucket has eleven tokens. A change may take more of them than there are.
        reply = await create(client, "a", 10, 7)
        assert (reply.topics[0].error_code, _ms(reply)) == (0, 0)
        reply = await grow(client, "a", 14, 3)
        assert (reply.results[0].error_code, _ms(reply)) == (0, 0)
        reply = await grow(client, "a", 15, 3)
        assert (reply.results[0].error_code, _ms(reply)) == (exceeded, 3_000)
        mock_clock.jump(3)
        assert (await grow(client, "a", 24, 3)).results[0].error_code == 0
        reply = await create(client, "b", 1, 6)
        assert (reply.topics[0].error_code, reply.topics[0].num_partitions, _ms(reply)) == (exceeded, -1, 10_000)
        mock_clock.jump(10)
        reply = await client.ask(20, 5, topic_names=("a",), timeout=SECONDS_5)
        assert (reply.responses[0].error_code, _ms(reply)) == (0, 0)
        reply = await client.ask(20, 5, topic_names=("none",), timeout=SECONDS_5)
        assert reply.responses[0].error_code == ErrorCode.unknown_topic_or_partition
        other = await harness.connect()
        other.client_id = "other"
        reply = await create(other, "c", 1, 7)
        assert (reply.topics[0].error_code, _ms(reply)) == (exceeded, 24_000)


async def test_earlier_versions_change_partitions_over_the_quota_and_are_throttled(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        await limit(harness, ANONYMOUS, controller_mutation_rate=1)
        client = await harness.connect()
        reply = await create(client, "a", 15, 5)
        assert (reply.topics[0].error_code, _ms(reply)) == (0, 4_000)
        mock_clock.jump(4)
        reply = await grow(client, "a", 17, 2)
        assert (reply.results[0].error_code, _ms(reply)) == (0, 2_000)
        mock_clock.jump(2)
        reply = await client.ask(20, 4, topic_names=("a",), timeout=SECONDS_5)
        assert (reply.responses[0].error_code, _ms(reply)) == (0, 17_000)


async def test_the_time_of_handlers_is_limited_for_all_requests(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        await harness.topic()
        # A ten-millionth of the time: less than any request needs.
        await limit(harness, ANONYMOUS, request_percentage=1e-5)
        client = await harness.connect()
        reply = await client.ask(60, 1, include_cluster_authorized_operations=False)
        # As in Kafka, at most the size of a sample.
        assert (reply.error_code, _ms(reply)) == (0, 1_000)
        asking = Asking(harness, client)
        await settled()
        assert not asking.answered
        mock_clock.jump(1)
        await settled()
        assert asking.answered
        mock_clock.jump(1)
        assert await produce(client, 10) == 1_000
        mock_clock.jump(1)
        reply = await fetch(client)
        assert (_ms(reply), len(parts(reply))) == (1_000, 1)


async def test_nothing_is_measured_without_quotas(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        # Quotas of addresses do not limit requests.
        await limit(harness, {"ip": None}, connection_creation_rate=1e6)
        await produce(client, 1_000_000)
        await limit(harness, ANONYMOUS, producer_byte_rate=1000)
        assert await produce(client, 1_000) == 0
        await harness.parts.quotas.change(Entity.of(ANONYMOUS), lambda _: {})
        assert await produce(client, 1_000_000) == 0


async def test_connections_over_the_rate_of_their_address_are_closed_after_a_delay(mock_clock: MockClock) -> None:
    async with gateway() as harness:
        await limit(harness, {"ip": "127.0.0.1"}, connection_creation_rate=1)
        for _ in range(10):
            assert (await (await harness.connect()).ask(18, 0)).error_code == 0
        late = await harness.connect()
        closed = trio.Event()

        async def wait() -> None:
            while await late.stream.receive_some():
                pass
            closed.set()

        harness.nursery.start_soon(wait)
        await settled()
        mock_clock.jump(0.99)
        await settled()
        assert not closed.is_set()
        mock_clock.jump(0.02)
        await closed.wait()
        counters = harness.parts.counters
        assert (counters.accepted, counters.connections_throttled) == (11, 1)
        mock_clock.jump(11)
        assert (await (await harness.connect()).ask(18, 0)).error_code == 0


class Clocks:
    def __init__(self) -> None:
        self.now = 0.0
        self.worked = 0.0


async def quotas_of(
    limits: dict[str, float],
    gateways: int = 1,
    names: Mapping[str, str | None] = ANN,
) -> tuple[Quotas, Clocks, Callable[..., Charge]]:
    """Quotas, by default of the user ann, in a cluster with some gateways, and a function that charges her requests."""
    store = MemoryMetadataStore()
    members, catalog = Members(store, NAMESPACE, "gateway"), QuotaCatalog(store, NAMESPACE)
    catalog.table = QuotaTable({Entity.of(names): limits})
    for number in range(gateways):
        member = Member(format=1, run_id=f"run-{number}", service="gateway", address=f"host-{number}:9094")
        key = paths.member_key(NAMESPACE, "gateway", member.run_id)
        await store.txn((), [Put(key, member.SerializeToString())])
    async with trio.open_nursery() as nursery:
        await nursery.start(members.run)
        nursery.cancel_scope.cancel()
    clocks = Clocks()
    quotas = Quotas(
        catalog,
        members,
        GatewayCounters(),
        now=lambda: clocks.now,
        processor=lambda: clocks.worked,
    )
    return quotas, clocks, lambda client_id="app": quotas.charge(user("ann"), client_id, lambda _: None)


@pytest.mark.parametrize("gateways", [0, 1, 3])
async def test_each_gateway_enforces_its_share(gateways: int) -> None:
    _, _, charge = await quotas_of({"producer_byte_rate": 3000.0, "controller_mutation_rate": 3.0}, gateways)
    share = 3000 // max(gateways, 1)
    within, beyond = charge(), charge()
    within.produced(10 * share)
    assert within.settle() == 0
    beyond.produced(10 * share)
    assert beyond.settle() == 10_000
    refused = charge()
    assert refused.changed(11 * share // 1000 + 1, strict=True)
    assert not refused.changed(1, strict=True)
    assert refused.settle() == round(1000 * 1000 / share)


async def test_only_the_time_in_which_a_handler_runs_is_charged() -> None:
    _, clocks, charge = await quotas_of({"request_percentage": 1.0})
    throttle_times: list[int] = []

    async def work(one: Charge) -> None:
        clocks.worked += 0.04
        await trio.lowlevel.checkpoint()
        clocks.worked += 0.05
        throttle_times.append(one.settle())
        # Work after the response is charged, too, and throttles the next request.
        clocks.worked += 0.05

    def handle(one: Charge) -> Any:
        clocks.worked += 0.01
        return work(one)

    async def elsewhere() -> None:
        clocks.worked += 7.0

    first = charge()
    remaining = metered(first, handle, first)
    assert remaining is not None
    clocks.worked += 100.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: remaining)
        nursery.start_soon(elsewhere)
    # One percent of ten seconds.
    assert throttle_times == [0]
    second = charge()
    metered(second, lambda _: None, None)
    # 0.15 seconds are half as much again.
    assert second.settle() == 1_000
    clocks.now += 11
    assert charge().settle() == 0


async def test_a_metered_handler_gets_errors_and_cancellations_and_raises_its_own() -> None:
    _, _, charge = await quotas_of({"request_percentage": 1.0})
    seen: list[str] = []

    async def work(_: object) -> None:
        with trio.move_on_after(0) as scope:
            await trio.sleep_forever()
        seen.append(f"cancelled: {scope.cancelled_caught}")
        raise ValueError("mine")

    remaining = metered(charge(), work, None)
    assert remaining is not None
    with pytest.raises(ValueError, match="mine"):
        await remaining
    assert seen == ["cancelled: True"]


def test_throttled_requests_of_many_entities_are_counted_together() -> None:
    counters = GatewayCounters()
    for number in range(MOST_ENTITIES + 5):
        counters.throttled("producer_byte_rate", f"user={number}", 0.5)
    assert counters.throttled_requests["producer_byte_rate", OTHER_ENTITIES] == 5
    assert counters.throttle_seconds["producer_byte_rate", OTHER_ENTITIES] == 2.5
