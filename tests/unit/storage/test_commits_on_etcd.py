"""What commits leave in a real etcd."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import trio

from kafscale.metadata.interface import Compacted, MetadataStore
from kafscale.service.cluster import EVERY_SERVICE, open_metadata
from kafscale.service.etcd import EtcdSettings
from kafscale.service.operations import Operations
from kafscale.service.process import Loaded
from tests.servers.etcd import running_etcd
from tests.unit.storage.harness import World, batch, siblings

PARTITIONS = 4
ROUNDS = 10


class Unobserved:
    """The operations of a process that nobody looks at."""

    def observed(self, metadata: MetadataStore) -> MetadataStore:
        return metadata


async def _keys(metadata: MetadataStore) -> list[str]:
    return [item.key for item in (await metadata.read_prefix("")).items]


async def test_pitfall_17_commits_add_no_keys_to_etcd_and_their_history_goes(tmp_path: Path) -> None:
    world = World()
    with running_etcd(tmp_path) as server:
        settings = Loaded(EVERY_SERVICE, {"KAFSCALE_ETCD_ENDPOINTS": ",".join(server.endpoints)})
        # Less than anybody may set.
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
            # One at a time they are one revision each.
            assert (await metadata.read_prefix("")).revision - first <= PARTITIONS * ROUNDS
            with trio.fail_after(30):
                while await _is_there(metadata, first):  # noqa: ASYNC110  etcd tells nobody of a compaction
                    await trio.sleep(0.1)


async def _is_there(metadata: MetadataStore, revision: int) -> bool:
    async with metadata.watch("", revision) as watch:
        try:
            await watch.next()
        except Compacted:
            return False
    return True
