"""Several storage instances behind one gateway: which one gets a request, and changes of owner."""

import pytest
import trio
from kio.schema.errors import ErrorCode
from trio.testing import MockClock

from tests.support.gateway.asking import fetch, fetch_body, parts, produce, produce_body, produced
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import Cluster, batch, read_response, running_gateway
from tests.unit.gateway.two_owners import (
    AFTER_APPEND,
    NOT_LEADER,
    READERS,
    offsets,
    parked,
    read,
    received,
    settled,
    two_owners,
)


async def test_each_partition_goes_to_its_own_owner() -> None:
    async with two_owners(4) as two:
        client = await two.harness.connect()
        for index in range(4):
            assert (await produce(client, batch(b"v"), partition=index)).error_code == 0
        assert sorted(key[1] for key in two.a.partitions) == [0, 2]
        assert sorted(key[1] for key in two.b.partitions) == [1, 3]
        reply = parts(await fetch(client, {("t", index): 0 for index in range(4)}))
        assert [offsets(part.records) for part in reply] == [[0]] * 4


async def test_a_partition_without_an_owner_goes_to_the_assigned_instance() -> None:
    cluster, storages = Cluster(), {"a": FakeStorage(), "b": FakeStorage(), "c": FakeStorage()}
    for run_id, storage in storages.items():
        await cluster.add(run_id, storage)
    async with running_gateway(cluster=cluster) as harness:
        topic = await harness.topic("t", 12)
        client = await harness.connect()
        for index in range(12):
            assert (await produce(client, batch(b"v"), partition=index)).error_code == 0
        for index in range(12):
            assigned = harness.storages.view.owner(topic.id, index)
            assert assigned is not None
            assert (topic.id, index) in storages[assigned.run_id].partitions


@pytest.mark.parametrize("kind", ["produce", *READERS])
async def test_clients_get_a_retriable_error_at_once_without_any_instance(kind: str) -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        await harness.cluster.remove("storage")
        await settled()
        client = await harness.connect()
        answer = await (produce(client, batch(b"v")) if kind == "produce" else read(client, kind))
        assert answer.error_code == NOT_LEADER
        await harness.cluster.add("next", FakeStorage())
        await settled()
        assert (await (produce(client, batch(b"v")) if kind == "produce" else read(client, kind))).error_code == 0


async def test_a_producers_retry_goes_to_the_owner_named_in_the_refusal() -> None:
    async with two_owners() as two:
        client = await two.harness.connect()
        two.a.moved[two.topic.id, 0] = "b"
        assert (await produce(client, batch(b"v"))).error_code == NOT_LEADER
        assert two.b.appends == [], "the producer decides about the order, so the gateway does not resend"
        assert (await produce(client, batch(b"v"))).error_code == 0
        assert (len(two.a.appends), len(two.b.appends)) == (1, 1)


@pytest.mark.parametrize("kind", READERS)
async def test_a_read_follows_the_owner_named_in_a_refusal(kind: str) -> None:
    async with two_owners() as two:
        two.a.moved[two.topic.id, 0] = "b"
        two.b.partition(two.ref()).high_watermark = 7
        client = await two.harness.connect()
        assert (await read(client, kind)).error_code == 0
        two.a.moved[two.topic.id, 0] = ""
        assert (await read(client, kind)).error_code == 0, "later requests go to it first"


@pytest.mark.parametrize("kind", READERS)
async def test_instances_that_name_each_other_get_one_request_each(kind: str) -> None:
    async with two_owners() as two:
        two.a.moved[two.topic.id, 0] = "b"
        two.b.moved[two.topic.id, 0] = "a"
        client = await two.harness.connect()
        assert (await read(client, kind)).error_code == NOT_LEADER
        if kind == "fetch":
            assert (len(two.a.fetches), len(two.b.fetches)) == (1, 1)


async def test_a_refusal_without_an_owner_does_not_change_the_routing() -> None:
    async with two_owners() as two:
        two.a.moved[two.topic.id, 0] = ""
        client = await two.harness.connect()
        assert (await read(client, "fetch")).error_code == NOT_LEADER
        del two.a.moved[two.topic.id, 0]
        assert (await read(client, "fetch")).error_code == 0
        assert (len(two.a.fetches), len(two.b.fetches)) == (2, 0)


async def test_an_ownership_change_overrides_the_owner_of_a_refusal() -> None:
    async with two_owners() as two:
        two.a.moved[two.topic.id, 0] = "b"
        client = await two.harness.connect()
        assert (await read(client, "fetch")).error_code == 0
        del two.a.moved[two.topic.id, 0]
        await two.own("a", 3)
        two.a.partition(two.ref()).epoch = 3
        assert (await read(client, "fetch", epoch=3)).error_code == 0
        assert (len(two.a.fetches), len(two.b.fetches)) == (2, 1)


async def test_a_named_run_that_is_gone_gets_no_request() -> None:
    async with two_owners() as two:
        two.a.moved[two.topic.id, 0] = "b"
        client = await two.harness.connect()
        assert (await produce(client, batch(b"v"))).error_code == NOT_LEADER
        del two.a.moved[two.topic.id, 0]
        await two.harness.cluster.remove("b")
        await settled()
        assert (await produce(client, batch(b"v"))).error_code == 0
        assert len(two.a.appends) == 2


async def test_a_leaving_owner_gets_requests_until_it_has_handed_over() -> None:
    async with two_owners() as two:
        await two.harness.cluster.add("a", two.a, leaving=True)
        await settled()
        client = await two.harness.connect()
        assert (await produce(client, batch(b"v"))).error_code == 0
        assert (len(two.a.appends), len(two.b.appends)) == (1, 0)


async def test_the_older_run_of_an_address_gets_no_requests() -> None:
    async with two_owners() as two:
        restarted = FakeStorage()
        await two.harness.cluster.add("a-again", restarted, address="a:9095")
        await settled()
        client = await two.harness.connect()
        await two.own("a-again", 2)
        assert (await produce(client, batch(b"v"))).error_code == 0
        assert (two.a.appends, len(restarted.appends)) == ([], 1)
        assert not two.a.streams, "the link to the older run has ended"


async def test_a_lost_instance_fails_held_appends_and_refuses_queued_ones() -> None:
    async with two_owners(append_messages=2) as two:
        two.a.auto_commit = False
        client = await two.harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"held")}))
        await two.a.wait_until(lambda: len(two.a.appends) == 1)
        await settled()
        two.a.gates = {2: trio.Event(), 3: trio.Event()}
        for value in (b"under way", b"too", b"queued"):
            await client.send(0, 9, produce_body({("t", 0): batch(value)}))
            await settled()
        assert len(two.a.appends) == 3
        await two.harness.cluster.remove("a")
        with trio.fail_after(30):
            errors = [(await produced(client)).error_code for _ in range(4)]
        assert errors == [AFTER_APPEND, AFTER_APPEND, AFTER_APPEND, NOT_LEADER]
        await settled()
        assert two.b.appends == [], "only the producer may resend records that may be in the log"
        assert (await produce(client, batch(b"again"))).error_code == 0
        assert len(two.b.appends) == 1


async def test_appends_that_wait_for_a_lost_instance_are_refused_at_once() -> None:
    async with two_owners() as two:
        two.a.auto_ready = False
        two.a.break_streams()
        await settled()
        client = await two.harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"v")}))
        await settled()
        await two.harness.cluster.remove("a")
        with trio.fail_after(2):
            assert (await produced(client)).error_code == NOT_LEADER
        assert two.a.appends == []


async def test_appends_in_flight_to_a_former_owner_are_not_overtaken() -> None:
    async with two_owners() as two:
        client = await two.harness.connect()
        two.a.moved[two.topic.id, 0] = "b"
        two.a.gates = {1: trio.Event(), 2: trio.Event()}
        for value in (b"0", b"1"):
            await client.send(0, 9, produce_body({("t", 0): batch(value)}))
            await settled()
        two.a.gates[1].set()
        assert (await produced(client)).error_code == NOT_LEADER
        await client.send(0, 9, produce_body({("t", 0): batch(b"2")}))
        await settled()
        assert two.b.appends == [], "append 1 has not been refused yet"
        two.a.gates[2].set()
        assert [(await produced(client)).error_code for _ in range(2)] == [NOT_LEADER] * 2
        for value in (b"0", b"1", b"2"):
            assert (await produce(client, batch(value))).error_code == 0
        assert [append.records[-2:-1] for each in two.b.appends for append in each.appends] == [b"0", b"1", b"2"]


async def test_a_parked_fetch_moves_to_the_new_owner() -> None:
    async with two_owners() as two:
        client, producer = await two.harness.connect(), await two.harness.connect()
        await parked(two, client)
        two.b.partition(two.ref()).epoch = 2
        two.a.hand_over(two.ref(), "b")
        await settled()
        await two.own("b", 2)
        assert [len(storage.fetches) for storage in (two.a, two.b)] == [1, 1]
        assert (await produce(producer, batch(b"v"))).error_code == 0
        part = await received(client)
        assert (part.error_code, offsets(part.records)) == (0, [0])
        assert len(two.b.fetches) == 2


async def test_a_parked_fetch_moves_to_an_owner_named_in_another_refusal() -> None:
    async with two_owners() as two:
        client, producer = await two.harness.connect(), await two.harness.connect()
        await parked(two, client)
        two.a.moved[two.topic.id, 0] = "b"
        assert (await produce(producer, batch(b"v"))).error_code == NOT_LEADER
        assert (await produce(producer, batch(b"v"))).error_code == 0
        part = await received(client)
        assert (part.error_code, offsets(part.records)) == (0, [0])


async def test_a_parked_fetch_of_a_lost_instance_moves_to_the_next() -> None:
    async with two_owners() as two:
        client, producer = await two.harness.connect(), await two.harness.connect()
        await parked(two, client)
        await two.harness.cluster.remove("a")
        await settled()
        assert len(two.b.fetches) == 1
        assert (await produce(producer, batch(b"v"))).error_code == 0
        assert offsets((await received(client)).records) == [0]


async def test_a_parked_fetch_is_sent_again_when_the_same_run_gets_the_partition_back() -> None:
    async with two_owners() as two:
        client = await two.harness.connect()
        await parked(two, client)
        # Released, and taken over again because the new owner died. This stream gets no event about that.
        partition = two.a.partition(two.ref())
        two.a.announce(partition, lost=True)
        await settled()
        partition.epoch = 2
        await two.own("a", 2)
        assert len(two.a.fetches) == 2
        # Another gateway's producer.
        partition.append(batch(b"v"))
        two.a.commit(partition)
        assert offsets((await received(client)).records) == [0]


async def test_an_answer_with_an_older_epoch_is_requested_only_once_more() -> None:
    async with two_owners() as two:
        client = await two.harness.connect()
        await parked(two, client)
        with trio.fail_after(5):
            await two.own("a", 2)
        assert len(two.a.fetches) == 2


async def test_a_parked_fetch_without_any_remaining_owner_is_answered() -> None:
    async with two_owners() as two:
        client = await two.harness.connect()
        await parked(two, client)
        await two.harness.cluster.remove("a")
        await two.harness.cluster.remove("b")
        assert (await received(client)).error_code == NOT_LEADER


async def test_a_commit_of_the_new_owner_before_a_fetch_moves_is_not_missed() -> None:
    async with two_owners() as two:
        client, producer = await two.harness.connect(), await two.harness.connect()
        await parked(two, client)
        two.b.partition(two.ref()).epoch = 2
        two.a.moved[two.topic.id, 0] = "b"
        two.b.fetch_gate = trio.Event()
        assert (await produce(producer, batch(b"v"))).error_code == NOT_LEADER
        await two.b.wait_until(lambda: len(two.b.fetches) == 1)
        assert (await produce(producer, batch(b"v"))).error_code == 0
        two.b.fetch_gate.set()
        assert offsets((await received(client)).records) == [0]


async def test_a_move_does_not_prolong_the_wait_of_a_fetch(mock_clock: MockClock) -> None:
    async with two_owners() as two:
        client = await two.harness.connect()
        started = trio.current_time()
        await parked(two, client, max_wait_ms=700)
        await two.own("b", 2)
        two.b.partition(two.ref()).epoch = 2
        mock_clock.jump(0.71 - (trio.current_time() - started))
        assert (await received(client)).records in (None, b"")
        assert trio.current_time() - started < 1


async def test_requests_to_several_owners_are_concurrent() -> None:
    async with two_owners(2) as two:
        two.a.fetch_gate = two.b.fetch_gate = trio.Event()
        client = await two.harness.connect()
        await client.send(1, 12, fetch_body({("t", 0): 0, ("t", 1): 0}, max_wait_ms=0))
        await two.a.wait_until(lambda: bool(two.a.fetches))
        await two.b.wait_until(lambda: bool(two.b.fetches))
        two.a.fetch_gate.set()
        _, body = await client.receive()
        assert [part.error_code for part in parts(read_response(1, 12, body))] == [0, 0]


@pytest.mark.parametrize(("max_bytes", "most"), [(20_000, 20_000), (9_000, 9_000), (100, 4_200), (1 << 20, 1 << 20)])
async def test_limits_apply_to_all_owners_together(max_bytes: int, most: int) -> None:
    async with two_owners(2) as two:
        client = await two.harness.connect()
        for index in (0, 1):
            for _ in range(4):
                await produce(client, batch(b"x" * 4000), partition=index)
        reply = parts(await fetch(client, {("t", 0): 0, ("t", 1): 0}, max_bytes=max_bytes))
        sizes = [len(part.records) for part in reply]
        assert 0 < sum(sizes) <= most
        assert all(sizes) == (max_bytes >= 9_000), "one owner does not use up the limit of all"
        if max_bytes == 1 << 20:
            assert [offsets(part.records) for part in reply] == [[0, 1, 2, 3]] * 2


async def test_a_failing_owner_does_not_affect_the_others_records() -> None:
    async with two_owners(2) as two:
        client = await two.harness.connect()
        await produce(client, batch(b"v"), partition=1)
        two.a.moved[two.topic.id, 0] = ""
        first, second = parts(await fetch(client, {("t", 0): 0, ("t", 1): 0}, min_bytes=1000))
        assert (first.error_code, second.error_code, offsets(second.records)) == (NOT_LEADER, 0, [0])


@pytest.mark.parametrize("kind", ["fetch", "list_offsets", "epoch_ends"])
@pytest.mark.parametrize(
    ("sent_epoch", "error"),
    [(-1, 0), (0, 0), (3, ErrorCode.fenced_leader_epoch), (4, 0), (5, ErrorCode.unknown_leader_epoch)],
)
async def test_leader_epochs_are_checked_by_the_owner(kind: str, sent_epoch: int, error: int) -> None:
    async with two_owners() as two:
        two.a.partition(two.ref()).epoch = 4
        assert (await read(await two.harness.connect(), kind, epoch=sent_epoch)).error_code == error


async def test_a_consumer_ahead_of_the_owners_epoch_does_not_get_out_of_range() -> None:
    async with two_owners() as two:
        client = await two.harness.connect()
        reply = await fetch(client, {("t", 0): 1000}, leader_epoch=2, max_wait_ms=0)
        assert parts(reply)[0].error_code == ErrorCode.unknown_leader_epoch
