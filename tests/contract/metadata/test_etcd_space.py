"""How full a real etcd is, and its maintenance."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kafscale import paths
from kafscale.errors import Refused, Unavailable
from kafscale.metadata.compaction import Upkeep
from kafscale.metadata.etcd import EtcdMetadataStore, open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.metadata.etcd_space import EtcdSpace
from kafscale.metadata.interface import Put
from tests.servers.etcd import Etcd, running_etcd

ROOT = paths.metadata_root("prod")
QUOTA = 4 << 20


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Etcd]:
    with running_etcd(tmp_path, members=3, quota_bytes=QUOTA) as etcd:
        yield etcd


@asynccontextmanager
async def _kept(store: EtcdMetadataStore) -> AsyncIterator[EtcdSpace]:
    """The space of ``store``, while its upkeep runs."""
    space = EtcdSpace(QUOTA)
    upkeep = Upkeep(store, store.maintenance, space, history_seconds=300, random=lambda: 0.1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upkeep.run)
        yield space
        nursery.cancel_scope.cancel()


async def _fill(store: EtcdMetadataStore) -> None:
    while True:
        await store.txn([], [Put(f"{ROOT}filler", bytes(1_000_000))])


async def test_each_member_reports_its_sizes_and_one_that_is_down_is_skipped(three: Etcd) -> None:
    config = EtcdConfig(endpoints=tuple(three.endpoints), timeout_seconds=30)
    async with open_etcd(config, random=lambda: 0.0) as store:
        statuses = await store.maintenance.statuses()
        assert [status.address for status in statuses] == sorted(three.endpoints)
        assert {(status.quota_bytes, status.alarms) for status in statuses} == {(QUOTA, ())}
        assert all(0 < status.database_bytes_in_use <= status.database_bytes for status in statuses)
        await trio.to_thread.run_sync(three.members[0].kill)
        assert [status.address for status in await store.maintenance.statuses()] == sorted(three.endpoints[1:])


async def test_a_revision_is_compacted_when_history_is_kept_only_from_a_later_one(tmp_path: Path) -> None:
    with running_etcd(tmp_path, quota_bytes=QUOTA) as etcd:
        config = EtcdConfig(endpoints=tuple(etcd.endpoints), timeout_seconds=30)
        async with open_etcd(config, random=lambda: 0.0) as store:
            revisions = [(await store.txn([], [Put(f"{ROOT}a", b"")])).revision for _ in range(3)]
            await store.compact(revisions[1])
            found = [await store.maintenance.is_compacted(revision) for revision in (*revisions, revisions[-1] + 1)]
    assert found == [True, False, False, False]


async def test_a_full_cluster_accepts_writes_again_with_all_its_keys(three: Etcd) -> None:
    config = EtcdConfig(endpoints=tuple(three.endpoints), timeout_seconds=30)
    async with open_etcd(config, random=lambda: 0.0) as store:
        lease = await store.grant_lease(60)
        await store.txn([], [Put(f"{ROOT}a", b"kept", lease)])
        with pytest.raises(Unavailable, match="database space exceeded"):
            await _fill(store)
        async with _kept(store) as space:
            with trio.fail_after(120):
                while not space.disarmed:  # noqa: ASYNC110  etcd tells nobody of it
                    await trio.sleep(0.1)
        assert space.defragmentations == 3
        assert all(status.database_bytes < QUOTA // 2 for status in await store.maintenance.statuses())
        await store.txn([], [Put(f"{ROOT}b", b"")])
        kept = await store.get(f"{ROOT}a")
        assert kept is not None
        assert kept.value == b"kept"
        await store.keep_alive(lease)


async def test_a_user_without_the_root_role_sees_everything_and_learns_what_it_may_not_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_etcd(tmp_path, quota_bytes=QUOTA) as etcd:
        etcd.enable_auth("kafscale", "secret", ROOT)
        config = EtcdConfig(endpoints=tuple(etcd.endpoints), username="kafscale", password="secret", timeout_seconds=30)
        async with open_etcd(config, random=lambda: 0.0) as store:
            with pytest.raises(Refused, match="permission denied"):
                await store.maintenance.defragment(etcd.endpoints[0])
            with pytest.raises(Unavailable, match="database space exceeded"):
                await _fill(store)
            async with _kept(store) as space:
                with trio.fail_after(60):
                    while not space.refused:  # noqa: ASYNC110  it is found out by trying
                        await trio.sleep(0.1)
            assert space.full
            assert "NOSPACE" in space.finding().reason
            assert "permission denied" in space.finding().reason
            assert capsys.readouterr().out.count("could not be compacted") == 1
