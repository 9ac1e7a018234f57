"""Broker ids of gateways: the same id after a restart, and never one id for two gateways, whatever they race."""

from itertools import permutations

import pytest

from kafscale import paths
from kafscale.errors import ConfigError, CorruptData, Unavailable
from kafscale.metadata.interface import Delete, Put
from kafscale.metadata.memory import MemoryMetadataStore, lost_answer
from kafscale.metadata.node_ids import Claim, NodeIds, instance_of
from kafscale.v1.metadata_pb2 import Member, NodeId

NS = "ns"


def ids(store: MemoryMetadataStore, instance: str, configured_id: int | None = None) -> NodeIds:
    return NodeIds(store, NS, instance=f"{instance}:9092", configured_id=configured_id)


async def register(store: MemoryMetadataStore, instance: str, node_id: int) -> None:
    member = Member(run_id=instance, node_id=node_id, listeners=[Member.Listener(name="P", host=instance, port=9092)])
    await store.txn((), [Put(paths.member_key(NS, "gateway", instance), member.SerializeToString())])


async def vanish(store: MemoryMetadataStore, instance: str) -> None:
    await store.txn((), [Delete(paths.member_key(NS, "gateway", instance))])


async def come_up(store: MemoryMetadataStore, instance: str, configured_id: int | None = None) -> int:
    named = ids(store, instance, configured_id)
    claim = await named.claim()
    await register(store, instance, claim.node_id)
    assert await named.confirm(claim)
    return claim.node_id


def test_an_instance_is_its_first_listener() -> None:
    first, second = Member.Listener(name="B", host="h", port=1), Member.Listener(name="A", host="a", port=2)
    assert instance_of(Member(listeners=[first, second])) == "h:1"


async def test_instances_get_the_lowest_free_ids_and_keep_them_over_restarts() -> None:
    store = MemoryMetadataStore()
    assert [await come_up(store, name) for name in "abc"] == [0, 1, 2]
    for name in "ab":
        await vanish(store, name)
    assert await come_up(store, "b") == 1
    assert await come_up(store, "d") == 0, "its instance has gone"
    assert await come_up(store, "a") == 3
    assert await come_up(store, "c") == 2, "restarted while its former lease still lives"


async def test_configured_ids_are_skipped_while_their_gateways_live() -> None:
    store = MemoryMetadataStore()
    assert await come_up(store, "a", configured_id=1) == 1
    assert [await come_up(store, name) for name in "bcd"] == [0, 2, 3]
    await vanish(store, "a")
    assert await come_up(store, "e") == 1
    with pytest.raises(ConfigError, match=r"KAFSCALE_BROKER_ID.*e:9092"):
        await ids(store, "a", configured_id=1).claim()


async def test_a_configured_id_is_taken_from_an_instance_that_is_gone() -> None:
    store = MemoryMetadataStore()
    assert await come_up(store, "a", configured_id=5) == 5
    assert await come_up(store, "a", configured_id=5) == 5
    await vanish(store, "a")
    assert await come_up(store, "b", configured_id=5) == 5


async def test_an_instance_takes_another_id_if_its_own_is_configured_for_a_live_one() -> None:
    store = MemoryMetadataStore()
    assert await come_up(store, "a") == 0
    await vanish(store, "a")
    await register(store, "z", 0)
    assert await come_up(store, "a") == 1


@pytest.mark.parametrize("order", sorted(set(permutations("AAABBB"))))
async def test_two_gateways_that_start_at_the_same_time_never_both_keep_an_id(order: tuple[str, ...]) -> None:
    """Claim, register and confirm in every order of two instances' steps. Then the loser starts again."""
    store = MemoryMetadataStore()
    claims: dict[str, Claim] = {}
    steps = {"A": 0, "B": 0}
    kept: dict[str, int] = {}
    for name in order:
        named, step = ids(store, name), steps[name]
        steps[name] += 1
        if step == 0:
            claims[name] = await named.claim()
        elif step == 1:
            await register(store, name, claims[name].node_id)
        elif await named.confirm(claims[name]):
            kept[name] = claims[name].node_id
        else:
            await vanish(store, name)
    assert kept
    for name in {"A", "B"} - set(kept):
        kept[name] = await come_up(store, name)
    assert sorted(kept.values()) == [0, 1]


async def test_a_claim_that_read_before_another_confirmation_fails_to_write() -> None:
    store = MemoryMetadataStore()
    first, second = ids(store, "a"), ids(store, "b")
    claim = await first.claim()
    records, live = await second._records(), await second._live()
    await register(store, "a", claim.node_id)
    assert await first.confirm(claim)
    stale = second._choice(records, live)
    assert stale == claim.node_id
    assert await second._write(stale, records[stale].mod_revision) == 0
    assert (await second.claim()).node_id == 1


async def test_a_claim_whose_answer_was_lost_is_found_again() -> None:
    store = MemoryMetadataStore()
    store.faults.append(lost_answer())
    with pytest.raises(Unavailable):
        await ids(store, "a").claim()
    assert await come_up(store, "a") == 0
    assert len((await store.read_prefix(paths.node_ids_prefix(NS))).items) == 1


async def test_a_record_of_a_later_release_is_an_error() -> None:
    store = MemoryMetadataStore()
    await store.txn((), [Put(paths.node_id_key(NS, 0), NodeId(format=9, instance="x").SerializeToString())])
    with pytest.raises(CorruptData, match="format 9"):
        await ids(store, "a").claim()
