"""The catalog of ACLs: what it decides after changes, and what is stored."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.acls import AclCatalog
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.security.acls import Acl, AclSet, Operation, PatternType, Permission, Resource, ResourceType
from kafscale.security.principals import user
from kafscale.v1.metadata_pb2 import Acl as StoredAcl

TOPIC = Resource(ResourceType.TOPIC, "t")


def allow(name: str, principal: str = "User:ann") -> Acl:
    type_, pattern = ResourceType.TOPIC, PatternType.LITERAL
    return Acl(type_, pattern, name, principal, "*", Operation.READ, Permission.ALLOW)


def allowed(catalog: AclCatalog, name: str = "t") -> bool:
    return catalog.current.decide(user("ann"), "10.0.0.1", Operation.READ, Resource(ResourceType.TOPIC, name)).allowed


@pytest.fixture
async def store(autojump_clock: MockClock) -> MemoryMetadataStore:
    return MemoryMetadataStore()


@pytest.fixture
async def catalog(store: MemoryMetadataStore, nursery: trio.Nursery) -> AsyncIterator[AclCatalog]:
    made = AclCatalog(store, "ns", AclSet())
    await nursery.start(made.run)
    yield made
    nursery.cancel_scope.cancel()


async def test_a_change_is_in_force_when_it_returns(catalog: AclCatalog) -> None:
    await catalog.create([allow("t")])
    assert allowed(catalog)
    # Both are there already, or not there, so nothing changes in the store.
    await catalog.create([allow("t")])
    await catalog.delete([allow("other")])
    assert allowed(catalog)
    await catalog.delete([allow("t")])
    assert not allowed(catalog)


async def test_many_acls_at_once(catalog: AclCatalog, store: MemoryMetadataStore) -> None:
    many = [allow(f"t{number}") for number in range(250)]
    await catalog.create(many)
    assert catalog.current.acls == set(many)
    assert len((await store.read_prefix(paths.acls_prefix("ns"))).items) == 250
    await catalog.delete(many[:249])
    assert catalog.current.acls == {many[249]}


async def test_others_follow(catalog: AclCatalog, store: MemoryMetadataStore, nursery: trio.Nursery) -> None:
    await catalog.create([allow("t")])
    other = AclCatalog(store, "ns", AclSet())
    await nursery.start(other.run)
    assert allowed(other)
    await other.delete([allow("t")])
    await other.create([allow("t", principal="User:bob")])
    await trio.testing.wait_all_tasks_blocked()
    assert catalog.current.acls == {allow("t", principal="User:bob")}


@pytest.mark.parametrize("changed", [{"format": 2}, {"operation": 99}])
async def test_an_acl_of_a_later_release_is_not_ignored(
    store: MemoryMetadataStore, changed: dict[str, int], autojump_clock: MockClock
) -> None:
    values = {"format": 1, "resource_type": 2, "pattern_type": 3, "operation": 3, "permission": 2} | changed
    stored = StoredAcl(name="t", principal="User:ann", host="*", **values)
    await store.txn([], [Put(paths.acl_key("ns", "1"), stored.SerializeToString())])
    with trio.fail_after(60), pytest.raises(CorruptData):
        await AclCatalog(store, "ns", AclSet()).run()
