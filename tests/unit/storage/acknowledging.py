"""Topics with records that are durable in an intake and not in segments."""

from kafscale.metadata.topics import TopicCatalog
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from kafscale.v1.storage_pb2 import PartitionAppended
from services.storage.settings import StorageSettings
from tests.support.storage.harness import Caller, World, batch, state_key

SLOW_SEGMENTS = StorageSettings(compression_codec="producer", retention_ms=-1, segment_interval_ms=3_600_000)


LEASE = 15.0


async def state_of(world: World, ref: PartitionRef) -> PartitionState:
    stored = await world.metadata.get(state_key(ref))
    assert stored is not None
    return PartitionState.FromString(stored.value)


async def acked(caller: Caller, ref: PartitionRef, *values: bytes) -> PartitionAppended:
    appended = await caller.append(ref, batch(*values))
    assert appended.status == Status.OK, appended.detail
    assert await caller.durable(appended, ref)
    return appended


async def topic_with_record(world: World, caller: Caller, catalog: TopicCatalog) -> PartitionRef:
    """Create a topic whose first record is in a segment, which is flushed at once."""
    ref = await world.topic(catalog)
    await acked(caller, ref, b"0")
    await caller.flush(ref)
    return ref


def intake_puts(world: World) -> list[str]:
    return [call.key for call in world.objects.calls if call.kind == "put_if_absent" and "~intake" in call.key]
