"""A restore in two steps: the plan that is shown before anything is written, and writing it."""

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing, suppress

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError
from kafscale.metadata.interface import Page
from kafscale.paths import BackupId
from kafscale_tools.recovery.apply import check_empty, write_rebuilt
from kafscale_tools.recovery.backup_format import Item, Manifest
from kafscale_tools.recovery.backups import NotThisCluster, list_backups, marked_cluster, read_items, read_manifest
from kafscale_tools.recovery.bucket import Bucket
from kafscale_tools.recovery.intakes import Intakes, read_intakes, seal_intakes
from kafscale_tools.recovery.known import read_known
from kafscale_tools.recovery.rebuild import Rebuilt, Report, rebuild
from kafscale_tools.recovery.sinks import SinksFound, read_sinks, rebuild_sinks
from kafscale_tools.recovery.stores import Stores


class Undecided(KafscaleError):
    """Some records have no topic object, and the user must decide what to do with them. Nothing was changed."""


class Restore:
    """A restore: call `plan`, then `write`. ``parallel`` is the number of concurrent reads from the bucket."""

    def __init__(self, stores: Stores, *, parallel: int, now_ms: int) -> None:
        self._stores = stores
        self._bucket = Bucket(stores.objects, stores.namespace, parallel=parallel)
        self._now_ms = now_ms
        self._sinks = SinksFound()
        self._intakes = Intakes()
        self._overwrite = False
        self.manifest: Manifest | None = None

    async def plan(
        self,
        *,
        snapshot: BackupId | None,
        newest: bool,
        adopt: Collection[str],
        ignore: Collection[str],
        overwrite: bool,
        report: Report,
    ) -> Rebuilt:
        """Read everything and change nothing. ``newest``: use the newest snapshot if ``snapshot`` is None.

        Raises NotEmpty, NotThisCluster, NoBackup, CorruptData, Undecided, Unavailable, Refused.
        """
        stores, self._overwrite = self._stores, overwrite
        await check_empty(stores.metadata, stores.namespace, overwrite=overwrite)
        cluster_id = await marked_cluster(stores.objects, stores.namespace)
        if snapshot is None and newest:
            snapshot = next(reversed((await list_backups(stores.backups, stores.namespace))[0]), None)
        if snapshot is not None:
            self.manifest = await read_manifest(stores.backups, stores.namespace, snapshot)
            if self.manifest.cluster_id != cluster_id:
                raise NotThisCluster(
                    f"snapshot {snapshot} belongs to cluster {self.manifest.cluster_id}, but the bucket to cluster "
                    f"{cluster_id}"
                )
        known = await read_known(self._items(), stores.namespace)
        # Clients have also seen the metadata that is overwritten. It may be damaged.
        with suppress(CorruptData):
            known.rise_above(await read_known(self._stored(), stores.namespace))
        self._intakes = await read_intakes(stores.objects, stores.namespace, known.runs, now_ms=self._now_ms)
        rebuilt = await rebuild(
            self._bucket,
            known,
            cluster_id,
            self._intakes,
            adopt=adopt,
            ignore=ignore,
            now_ms=self._now_ms,
            report=report,
        )
        if rebuilt.undecided:
            raise Undecided(
                f"there are records but no topic objects of {', '.join(rebuilt.undecided)}: the topics were created "
                "just before the loss, or the records are left over from a deletion. Use --adopt NAME to create a "
                "topic, or --ignore NAME to ignore the records"
            )
        self._sinks = await rebuild_sinks(stores.objects, stores.namespace, await read_sinks(self._items()), rebuilt)
        return rebuilt

    async def write(self, rebuilt: Rebuilt) -> None:
        """Write the result of `plan`. Raises the errors of `seal_intakes` and of `write_rebuilt`."""
        await seal_intakes(self._stores.objects, self._stores.namespace, self._intakes, now_ms=self._now_ms)
        await write_rebuilt(
            self._stores.metadata,
            self._stores.objects,
            rebuilt,
            self._stores.namespace,
            overwrite=self._overwrite,
            sinks=self._sinks.records,
            progress=self._sinks.progress,
            items=self._items(),
            now_ms=self._now_ms,
        )

    async def _stored(self) -> AsyncGenerator[Item, None]:
        """Yield all keys of the metadata store."""
        root, page = paths.metadata_root(self._stores.namespace), Page(0, (), more=True)
        after = ""
        while page.more:
            page = await self._stores.metadata.read_page(root, after=after)
            for item in page.items:
                after = item.key
                yield Item(item.key.removeprefix(root), item.value)

    async def _items(self) -> AsyncGenerator[Item, None]:
        if self.manifest is not None:
            async with aclosing(read_items(self._stores.backups, self.manifest)) as items:
                async for item in items:
                    yield item
