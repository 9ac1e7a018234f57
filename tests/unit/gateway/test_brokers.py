"""Several gateways as clients see them in Metadata: brokers, leaders, node ids and leader epochs."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.config.listeners import Listener
from kafscale.errors import ConfigError
from kafscale.metadata.interface import Delete, Put
from kafscale.metadata.members import Members
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.v1.metadata_pb2 import Member
from services.gateway.brokers import Brokers
from services.gateway.registration import Registration
from services.gateway.service import Gateway
from tests.support.gateway.asking import fetch, parts, produce, produce_body
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import NAMESPACE, Client, Cluster, Harness, batch, parts_of, running_gateway
from tests.unit.gateway.test_topics import metadata

ON_TWO = "IN://127.0.0.1:0,OUT://127.0.0.1:0"


def named(host: str) -> dict[str, Any]:
    """Settings for two listeners with known addresses."""
    return {"listeners": ON_TWO, "advertised_listeners": f"IN://{host}-in:1,OUT://{host}-out:2"}


async def one_cluster() -> Cluster:
    cluster = Cluster()
    await cluster.add("storage", FakeStorage())
    return cluster


async def brokers_of(client: Client) -> dict[int, tuple[str, int]]:
    """Return the brokers in a client's metadata."""
    return {broker.node_id: (broker.host, broker.port) for broker in (await metadata(client, [])).brokers}


async def wait_for_brokers(harness: Harness, brokers: int) -> Any:
    client = await harness.connect()
    with trio.fail_after(5):
        while len(await brokers_of(client)) != brokers:
            await wait_all_tasks_blocked(0.01)
    return await brokers_of(client)


async def test_clients_learn_of_new_and_removed_gateways() -> None:
    cluster = await one_cluster()
    async with running_gateway(cluster=cluster, **named("a")) as first:
        client = await first.connect()
        assert await brokers_of(client) == {0: ("a-in", 1)}
        async with running_gateway(cluster=cluster, **named("b")) as second:
            assert await wait_for_brokers(first, 2) == {0: ("a-in", 1), 1: ("b-in", 1)}
            assert await brokers_of(await second.connect()) == {0: ("a-in", 1), 1: ("b-in", 1)}
            assert await brokers_of(await second.connect(1)) == {0: ("a-out", 2), 1: ("b-out", 2)}
            assert (await metadata(await second.connect(), [])).controller_id == 0
            await second.topic("t")
            second.storage.auto_commit = False
            await (await second.connect()).send(0, 9, produce_body({("t", 0): batch(b"v")}))
            await second.storage.wait_until(lambda: bool(second.storage.appends))
            second.stop.set()
            assert await wait_for_brokers(first, 1) == {0: ("a-in", 1)}
            assert not second.stopped.is_set(), "clients see the change while it still answers its last requests"
        await wait_all_tasks_blocked(0.02)
        assert len(list(first.gateways.view)) == 1, "its lease is revoked"


async def test_gateways_without_the_listener_are_not_listed() -> None:
    cluster = await one_cluster()
    async with (
        running_gateway(cluster=cluster, **named("a")) as first,
        running_gateway(cluster=cluster, listeners="IN://127.0.0.1:0", advertised_listeners="IN://b-in:1") as second,
    ):
        assert await wait_for_brokers(first, 2) == {0: ("a-in", 1), 1: ("b-in", 1)}
        assert await brokers_of(await first.connect(1)) == {0: ("a-out", 2)}
        assert len(await brokers_of(await second.connect())) == 2


async def test_any_gateway_serves_any_partition_whatever_its_leader() -> None:
    cluster = await one_cluster()
    async with running_gateway(cluster=cluster) as first, running_gateway(cluster=cluster) as second:
        await wait_for_brokers(first, 2)
        await second.catalog.create("t", 8, {}, now_ms=0, topic_id=b"t" * 16)
        await wait_all_tasks_blocked(0.02)
        client = await first.connect()
        (topic,) = (await metadata(client, ["t"])).topics
        leaders = [partition.leader_id for partition in topic.partitions]
        assert set(leaders) == {0, 1}
        assert all(each.replica_nodes == each.isr_nodes == (each.leader_id,) for each in topic.partitions)
        (same,) = (await metadata(await second.connect(), ["t"])).topics
        assert [partition.leader_id for partition in same.partitions] == leaders, "all gateways agree"
        for index in range(8):
            assert (await produce(client, batch(b"v"), partition=index)).error_code == 0
        reply = parts(await fetch(await second.connect(), {("t", index): 0 for index in range(8)}))
        assert [part.high_watermark for part in reply] == [1] * 8


async def test_metadata_has_the_leader_epochs_of_the_ownership_map() -> None:
    cluster = await one_cluster()
    async with running_gateway(cluster=cluster) as harness:
        topic = await harness.topic("t", 2)
        client = await harness.connect()

        async def leader_epochs() -> list[int]:
            (one,) = (await metadata(client, ["t"])).topics
            return [partition.leader_epoch for partition in one.partitions]

        assert await leader_epochs() == [1, 1], "the epoch of the first owner"
        await cluster.own(topic, "storage", partition=1, epoch=7)
        await wait_all_tasks_blocked(0.02)
        assert await leader_epochs() == [1, 7]
        await harness.catalog.mark_deleting("t")
        await harness.catalog.finish_delete("t", topic.id, 7, deleter=paths.member_key(NAMESPACE, "storage", "storage"))
        again = await harness.catalog.create("t", 1, {}, now_ms=0, topic_id=b"2" * 16)
        await wait_all_tasks_blocked(0.02)
        assert await leader_epochs() == [again.epoch_floor + 1]
        assert again.epoch_floor >= 7


async def gateway_member(metadata: MemoryMetadataStore, node_id: int, host: str, **more: Any) -> None:
    run_id = more.pop("run_id", f"run-{node_id}")
    listeners = [Member.Listener(name="IN", host=host, port=1)]
    member = Member(run_id=run_id, service="gateway", node_id=node_id, listeners=listeners, **more)
    await metadata.txn((), [Put(paths.member_key(NAMESPACE, "gateway", run_id), member.SerializeToString())])


IN = Listener("IN", "", 1, "own", 1)


async def test_leaders_are_spread_evenly_and_few_move_on_changes() -> None:
    store = MemoryMetadataStore()
    gateways = Members(store, NAMESPACE, "gateway")
    brokers = Brokers(gateways, lambda: 3)
    places = [(bytes([number]) * 16, index) for number in range(10) for index in range(100)]
    async with trio.open_nursery() as nursery:
        for node_id in range(3):
            await gateway_member(store, node_id, f"h{node_id}")
        await nursery.start(gateways.run)
        four = {place: brokers.at(IN).leader(*place) for place in places}
        assert set(Counter(four.values())) == {0, 1, 2, 3}
        assert all(200 <= count <= 300 for count in Counter(four.values()).values())
        await gateway_member(store, 4, "h4")
        await wait_all_tasks_blocked(0.01)
        five = {place: brokers.at(IN).leader(*place) for place in places}
        moved = [place for place in places if five[place] != four[place]]
        assert 150 <= len(moved) <= 250
        assert {five[place] for place in moved} == {4}
        await store.txn((), [Delete(paths.member_key(NAMESPACE, "gateway", "run-4"))])
        await wait_all_tasks_blocked(0.01)
        assert {place: brokers.at(IN).leader(*place) for place in places} == four
        nursery.cancel_scope.cancel()


async def test_leaving_gateways_and_older_processes_of_a_node_id_are_not_listed() -> None:
    store = MemoryMetadataStore()
    gateways = Members(store, NAMESPACE, "gateway")
    brokers = Brokers(gateways, lambda: 5)
    await gateway_member(store, 0, "before", run_id="z")
    await gateway_member(store, 0, "after", run_id="a")
    await gateway_member(store, 1, "leaving", leaving=True)
    await gateway_member(store, 5, "own-before", run_id="own-before")
    async with trio.open_nursery() as nursery:
        await nursery.start(gateways.run)
        view = brokers.at(IN)
        assert [(each.node_id, each.host) for each in view.brokers] == [(0, "after"), (5, "own")]
        assert view.controller == 0
        nursery.cancel_scope.cancel()


async def test_a_restarted_gateway_keeps_its_node_id_and_a_new_one_gets_a_free_one() -> None:
    cluster = await one_cluster()
    async with running_gateway(cluster=cluster, **named("a")) as first:
        async with running_gateway(cluster=cluster, **named("b")):
            await wait_for_brokers(first, 2)
        await wait_for_brokers(first, 1)
        async with running_gateway(cluster=cluster, **named("b")):
            assert 1 in await wait_for_brokers(first, 2)
        await wait_for_brokers(first, 1)
        async with running_gateway(cluster=cluster, **named("c")):
            assert await wait_for_brokers(first, 2) == {0: ("a-in", 1), 1: ("c-in", 1)}


async def test_a_gateway_has_its_configured_node_id_unless_it_is_in_use() -> None:
    cluster = await one_cluster()
    async with running_gateway(cluster=cluster, broker_id=3, **named("a")) as first:
        assert set(await brokers_of(await first.connect())) == {3}
        other = Gateway(replace(parts_of(cluster, broker_id=3, **named("b")), lease_ttl_seconds=0))
        with pytest.raises(ExceptionGroup) as refused:
            await first.run_beside(other)
        assert refused.group_contains(ConfigError, match="KAFSCALE_BROKER_ID")
        async with running_gateway(cluster=cluster, **named("c")) as third:
            assert set(await brokers_of(await third.connect())) == {0, 3}


async def test_a_gateway_restarted_at_another_address_waits_for_its_old_lease(autojump_clock: MockClock) -> None:
    store, listener = MemoryMetadataStore(), Listener("IN", "", 1, "new", 1)
    await gateway_member(store, 3, "old")
    registration = Registration(
        store,
        NAMESPACE,
        listeners=(listener,),
        address="",
        configured_id=3,
        lease_ttl_seconds=10,
        now_ms=lambda: 0,
        clock=trio.current_time,
    )

    async def end_lease() -> None:
        await trio.sleep(9.5)
        assert registration.membership is None
        await store.txn((), [Delete(paths.member_key(NAMESPACE, "gateway", "run-3"))])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_lease)
        with trio.fail_after(11):
            await nursery.start(registration.run)
        assert registration.node_id == 3
        nursery.cancel_scope.cancel()


async def test_a_gateway_that_loses_its_lease_registers_again_with_its_node_id() -> None:
    cluster = await one_cluster()
    async with running_gateway(cluster=cluster) as harness:
        (live,) = harness.gateways.view
        item = await cluster.metadata.get(paths.member_key(NAMESPACE, "gateway", live.run_id))
        assert item is not None
        await cluster.metadata.revoke_lease(item.lease)
        client = await harness.connect()
        assert set(await brokers_of(client)) == {0}, "the broker is listed even without a registration"
        with trio.fail_after(10):
            view = harness.gateways.view
            while not view.by_run_id:
                view = await harness.gateways.wait_change(view)
        (again,) = harness.gateways.view
        assert (again.run_id != live.run_id, again.member.node_id) == (True, 0)
