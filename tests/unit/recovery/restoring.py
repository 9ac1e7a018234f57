"""Backups and restores of a simulated cluster."""

from collections.abc import Sequence

from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.topics import TopicCatalog
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import PartitionState
from kafscale_tools.recovery.backups import take_backup
from kafscale_tools.recovery.rebuild import Rebuilt
from kafscale_tools.recovery.restore import Restore
from kafscale_tools.recovery.stores import Stores
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, state_key


async def planned(world: World, *, ignore: Sequence[str] = ()) -> Rebuilt:
    return (await prepared(world, ignore=ignore))[1]


async def prepared(
    world: World,
    adopt: Sequence[str] = (),
    ignore: Sequence[str] = (),
    newest: bool = True,
    overwrite: bool = False,
) -> tuple[Restore, Rebuilt]:
    restore = Restore(Stores(world.metadata, world.objects, NAMESPACE, world.objects), parallel=4, now_ms=world.now_ms)
    rebuilt = await restore.plan(
        snapshot=None, newest=newest, adopt=adopt, ignore=ignore, overwrite=overwrite, report=lambda _: None
    )
    return restore, rebuilt


async def restored(world: World, *, newest: bool = True, adopt: Sequence[str] = ()) -> Rebuilt:
    """Lose all metadata and restore it."""
    world.metadata = MemoryMetadataStore()
    restore, rebuilt = await prepared(world, adopt, newest=newest)
    await restore.write(rebuilt)
    return rebuilt


async def backed_up(world: World) -> None:
    await take_backup(world.metadata, world.objects, NAMESPACE, now_ms=world.now_ms, version="1")


async def state_of(world: World, ref: PartitionRef) -> PartitionState:
    item = await world.metadata.get(state_key(ref))
    assert item is not None
    return PartitionState.FromString(item.value)


async def acked(caller: Caller, ref: PartitionRef, *values: bytes) -> None:
    """Append batches, each in its own segment, and wait for their acks."""
    for value in values:
        assert await caller.durable(await caller.append(ref, batch(value)), ref)


async def topic_with_record(world: World, caller: Caller, catalog: TopicCatalog) -> PartitionRef:
    """Create a topic with one record, which is in a segment, and return its first partition."""
    ref = await world.topic(catalog)
    await acked(caller, ref, b"0")
    await caller.flush(ref)
    return ref
