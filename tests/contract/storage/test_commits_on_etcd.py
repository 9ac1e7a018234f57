"""Effects of commits on a real etcd."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import trio

from kafscale import paths
from kafscale.config.etcd import EtcdSettings
from kafscale.errors import Unavailable
from kafscale.metadata.etcd_space import EtcdSpace
from kafscale.metadata.interface import Compacted, MetadataStore, Put
from kafscale.process.operations import Operations
from kafscale.process.process import Loaded
from kafscale.process.startup import EVERY_SERVICE, open_metadata
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from kafscale.v1.storage_pb2 import PartitionAppend
from tests.servers.etcd import running_etcd
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, siblings

PARTITIONS = 4
ROUNDS = 10
MANY = 100
SMALL_QUOTA = 4 << 20


class Unobserved:
    """Operations of a process without a listener."""

    space: EtcdSpace

    def observed(self, metadata: MetadataStore) -> MetadataStore:
        return metadata

    def watch_space(self, space: EtcdSpace) -> None:
        self.space = space


async def _keys(metadata: MetadataStore) -> list[str]:
    return [item.key for item in (await metadata.read_prefix("")).items]


async def test_commits_add_no_keys_to_etcd_and_their_history_is_compacted(tmp_path: Path) -> None:
    world = World()
    with running_etcd(tmp_path) as server:
        settings = Loaded(EVERY_SERVICE, {"KAFSCALE_ETCD_ENDPOINTS": ",".join(server.endpoints)})
        # Less than the setting allows.
        settings._values[EtcdSettings] = replace(settings[EtcdSettings], history_ms=1_000)
        async with (
            open_metadata(settings, cast(Operations, Unobserved())) as metadata,
            world.service(metadata=metadata, segment_bytes=1) as (caller, catalog),
        ):
            refs = siblings(await world.topic(catalog, partitions=PARTITIONS), PARTITIONS)

            async def commits() -> None:
                for ref in refs * ROUNDS:
                    appended = await caller.append(ref, batch(b"x"))
                    assert await caller.durable(appended, ref)

            await commits()
            before, first = await _keys(metadata), (await metadata.read_prefix("")).revision
            await commits()
            assert await _keys(metadata) == before
            # Separate commits would need one revision each.
            assert (await metadata.read_prefix("")).revision - first <= PARTITIONS * ROUNDS
            with trio.fail_after(30):
                while await _is_there(metadata, first):  # noqa: ASYNC110  etcd tells nobody of a compaction
                    await trio.sleep(0.1)


async def test_commits_continue_after_writing_more_than_the_etcd_quota(tmp_path: Path) -> None:
    """A history of five minutes would be three times the quota."""
    world, operations, topic = World(), Unobserved(), "t" * 240
    with running_etcd(tmp_path, quota_bytes=SMALL_QUOTA) as server:
        settings = Loaded(EVERY_SERVICE, {"KAFSCALE_ETCD_ENDPOINTS": ",".join(server.endpoints)})
        async with (
            open_metadata(settings, cast(Operations, operations)) as metadata,
            world.service(metadata=metadata, segment_bytes=1) as (caller, catalog),
        ):
            refs = siblings(await world.topic(catalog, topic, partitions=MANY), MANY)
            written, records = 0, 0
            with trio.fail_after(300):
                while written < 3 * SMALL_QUOTA // 2:
                    records += 1
                    waiting = refs
                    while waiting:
                        waiting = await _appended(caller, waiting)
                    caller.news.clear()
                    [*states] = (await metadata.read_prefix(paths.partition_states_prefix(NAMESPACE))).items
                    written += sum(len(item.key) + len(item.value) for item in states)
            assert operations.space.compactions["size"] > 0
            assert all(PartitionState.FromString(item.value).high_watermark == records for item in states)


async def test_commits_wait_while_etcd_is_full_and_continue_after_compaction(tmp_path: Path) -> None:
    world, operations = World(), Unobserved()
    with running_etcd(tmp_path, quota_bytes=SMALL_QUOTA) as server:
        settings = Loaded(EVERY_SERVICE, {"KAFSCALE_ETCD_ENDPOINTS": ",".join(server.endpoints)})
        async with (
            open_metadata(settings, cast(Operations, operations)) as metadata,
            world.service(metadata=metadata, segment_bytes=1) as (caller, catalog),
        ):
            ref = await world.topic(catalog)
            assert await caller.durable(await caller.append(ref, batch(b"x")))
            with pytest.raises(Unavailable, match="database space exceeded"):
                await _fill(metadata)
            second = await caller.append(ref, batch(b"x"))
            assert await caller.durable(second, ref), "an acknowledgement needs no commit"
            with trio.fail_after(120):
                await caller.flush(ref)
            assert (operations.space.disarmed, operations.space.defragmentations) == (1, 1)


async def _appended(caller: Caller, refs: list[PartitionRef]) -> list[PartitionRef]:
    """Append a record to each and wait for its commit. Return the partitions that are still being taken over."""
    reply = await caller.send(*(PartitionAppend(partition=ref, records=batch(b"x")) for ref in refs))
    unavailable = []
    for ref, result in zip(refs, reply.results, strict=True):
        if result.status == Status.UNAVAILABLE:
            unavailable.append(ref)
        else:
            assert await caller.durable(result, ref)
    return unavailable


async def _fill(metadata: MetadataStore) -> None:
    while True:
        await metadata.txn((), [Put("filler", bytes(1_000_000))])


async def _is_there(metadata: MetadataStore, revision: int) -> bool:
    async with metadata.watch("", revision) as watch:
        try:
            await watch.next()
        except Compacted:
            return False
    return True
