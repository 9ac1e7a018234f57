"""Users, tokens and TLS of a real etcd."""

import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trustme

from kafscale import paths
from kafscale.config.etcd import EtcdSettings, open_etcd_store
from kafscale.config.settings import load
from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.metadata.etcd import EtcdMetadataStore, open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.metadata.etcd_maintenance import EtcdStatus
from kafscale.metadata.interface import Event, Put
from kafscale.rpc.tls import RpcTls
from tests.servers.etcd import ROOT_PASSWORD, Etcd, ServerTls, running_etcd

NAMESPACE = "prod"
ROOT = paths.metadata_root(NAMESPACE)
USER, PASSWORD = "kafscale", "secret"
_TOKEN_SECONDS = 1


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd whose user may access only the keys of the namespace. Unused tokens expire after a second."""
    with running_etcd(tmp_path, token_seconds=_TOKEN_SECONDS) as etcd:
        etcd.enable_auth(USER, PASSWORD, ROOT)
        yield etcd


def _config(etcd: Etcd, password: str = PASSWORD) -> EtcdConfig:
    return EtcdConfig(endpoints=tuple(etcd.endpoints), username=USER, password=password, timeout_seconds=30)


def _settings(etcd: Etcd, **others: str) -> EtcdSettings:
    environ = {"ENDPOINTS": ",".join(etcd.endpoints), "USERNAME": USER, "PASSWORD": PASSWORD} | others
    return load(EtcdSettings, {f"KAFSCALE_ETCD_{name}": value for name, value in environ.items()})


async def _use(store: EtcdMetadataStore) -> list[Event]:
    """Use the store as every service does."""
    lease = await store.grant_lease(60)
    made = await store.txn([], [Put(f"{ROOT}a", b"1", lease)])
    await store.keep_alive(lease)
    assert (await store.read_prefix(ROOT)).revision == made.revision
    async with store.watch(ROOT, made.revision) as watch:
        seen = [*await watch.next()]
        await store.revoke_lease(lease)
        seen += await watch.next()
    return seen


async def test_a_user_of_the_namespace_has_sufficient_permissions(guarded: Etcd) -> None:
    async with open_etcd_store(_settings(guarded), NAMESPACE, random=lambda: 0.5) as store:
        assert [bool(event.value) for event in await _use(store)] == [True, False]
        status = await store.status()
    assert isinstance(status, EtcdStatus)
    assert (status.has_leader, status.problems, status.version.split(".")[0]) == (True, (), "3")
    assert 0 < status.database_bytes_in_use <= status.database_bytes


async def test_only_root_may_compact(guarded: Etcd) -> None:
    async with open_etcd(_config(guarded), random=lambda: 0.5) as store:
        made = await store.txn([], [Put(f"{ROOT}a", b"1")])
        with pytest.raises(Refused, match="permission denied"):
            await store.compact(made.revision)
    async with open_etcd_store(
        _settings(guarded, USERNAME="root", PASSWORD=ROOT_PASSWORD), NAMESPACE, random=lambda: 0.5
    ) as store:
        await store.compact(made.revision)


async def test_an_expired_token_is_renewed_without_an_error(guarded: Etcd) -> None:
    async with open_etcd(_config(guarded), random=lambda: 0.5) as store:
        for _ in range(2):
            await _use(store)
            # etcd checks for expired tokens once a second.
            await trio.sleep(_TOKEN_SECONDS + 2)
            await store.txn([], [Put(f"{ROOT}b", b"1")])


async def test_a_token_that_a_restart_forgot_is_renewed_by_calls_at_once_and_by_a_watch(guarded: Etcd) -> None:
    async with open_etcd(_config(guarded), random=lambda: 0.5) as store, AsyncExitStack() as stack:
        first = await store.txn([], [Put(f"{ROOT}a", b"1")])
        watch = await stack.enter_async_context(store.watch(ROOT, first.revision))
        await watch.next()
        await trio.to_thread.run_sync(guarded.members[0].restart)
        seen: list[str] = []

        async def follow() -> None:
            while len(seen) < 20:
                seen.extend(event.key for event in await watch.next())

        async def put(number: int) -> None:
            await store.txn([], [Put(f"{ROOT}{number:02d}", b"")])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            for number in range(20):
                nursery.start_soon(put, number)
    assert sorted(seen) == [f"{ROOT}{number:02d}" for number in range(20)]


async def test_a_watch_that_opens_with_a_forgotten_token_renews_it(guarded: Etcd) -> None:
    async with open_etcd(_config(guarded), random=lambda: 0.5) as store:
        first = await store.txn([], [Put(f"{ROOT}a", b"1")])
        await trio.to_thread.run_sync(guarded.members[0].restart)
        async with store.watch(ROOT, first.revision) as watch:
            assert [event.key for event in await watch.next()] == [f"{ROOT}a"]


async def test_a_wrong_password_is_refused_and_the_settings_are_named(guarded: Etcd) -> None:
    async with open_etcd(_config(guarded, "wrong"), random=lambda: 0.5) as store:
        with pytest.raises(Refused, match=r"user 'kafscale'.*authentication failed"):
            await store.get(f"{ROOT}a")
        with pytest.raises(Refused, match="authentication failed"):
            async with store.watch(ROOT, 1) as watch:
                await watch.next()
    with pytest.raises(ConfigError, match=r"KAFSCALE_ETCD_PASSWORD.*authentication failed"):
        async with open_etcd_store(_settings(guarded, PASSWORD="wrong"), NAMESPACE, random=lambda: 0.5):
            pass


async def test_a_missing_user_is_reported(guarded: Etcd) -> None:
    settings = load(EtcdSettings, {"KAFSCALE_ETCD_ENDPOINTS": ",".join(guarded.endpoints)})
    with pytest.raises(ConfigError, match=r"KAFSCALE_ETCD_USERNAME.*user name is empty"):
        async with open_etcd_store(settings, NAMESPACE, random=lambda: 0.5):
            pass


async def test_keys_that_the_user_may_not_touch_are_refused(guarded: Etcd) -> None:
    async with open_etcd(_config(guarded), random=lambda: 0.5) as store:
        with pytest.raises(Refused, match="permission denied"):
            await store.get("other/a")
        with pytest.raises(Refused, match="permission denied"):
            await store.txn([], [Put("other/a", b"")])
        async with store.watch("other/", 1) as watch:
            for _ in range(2):
                with pytest.raises(Refused, match="permission denied"):
                    await watch.next()


async def test_a_user_without_authentication_in_etcd_is_reported(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd, pytest.raises(ConfigError, match="authentication is not enabled"):
        async with open_etcd_store(_settings(etcd), NAMESPACE, random=lambda: 0.5):
            pass


async def test_the_start_waits_for_an_etcd_that_is_not_up_yet_but_not_forever(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd:
        await trio.to_thread.run_sync(etcd.members[0].stop)
        settings = load(EtcdSettings, {"KAFSCALE_ETCD_ENDPOINTS": etcd.endpoints[0], "KAFSCALE_ETCD_TIMEOUT_MS": "200"})
        with pytest.raises(Unavailable, match="failed to connect"):
            async with open_etcd_store(settings, NAMESPACE, random=lambda: 0.5, patience=0.3):
                pass
        etcd.members[0].start()
        async with open_etcd_store(settings, NAMESPACE, random=lambda: 0.5, patience=60) as store:
            assert await store.get(paths.cluster_key(NAMESPACE)) is None


@dataclass(frozen=True)
class Files:
    """A CA, and a certificate of it for 127.0.0.1."""

    ca_file: Path
    cert_file: Path
    key_file: Path

    def server(self, *, client_auth: bool = False) -> ServerTls:
        return ServerTls(
            ca_file=self.ca_file, cert_file=self.cert_file, key_file=self.key_file, client_auth=client_auth
        )


def _files(directory: Path) -> Files:
    directory.mkdir()
    files = Files(*(directory / name for name in ("ca.pem", "cert.pem", "key.pem")))
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    ca.cert_pem.write_to_path(files.ca_file)
    issued.cert_chain_pems[0].write_to_path(files.cert_file)
    issued.private_key_pem.write_to_path(files.key_file)
    return files


async def _try(etcd: Etcd, tls: RpcTls | None, seconds: float) -> list[Event]:
    config = EtcdConfig(endpoints=tuple(etcd.endpoints), tls=tls, timeout_seconds=seconds)
    async with open_etcd(config, random=lambda: 0.5) as store:
        return await _use(store)


async def test_tls_with_the_right_ca_only(tmp_path: Path) -> None:
    ours, theirs = _files(tmp_path / "ours"), _files(tmp_path / "theirs")
    with running_etcd(tmp_path, tls=ours.server()) as etcd:
        assert len(await _try(etcd, RpcTls(ca_file=ours.ca_file), 30)) == 2
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await _try(etcd, RpcTls(ca_file=theirs.ca_file), 1)
        with pytest.raises(Unavailable):
            await _try(etcd, None, 1)


async def test_mutual_tls(tmp_path: Path) -> None:
    ours, theirs = _files(tmp_path / "ours"), _files(tmp_path / "theirs")
    with running_etcd(tmp_path, tls=ours.server(client_auth=True)) as etcd:
        pair = RpcTls(ca_file=ours.ca_file, cert_file=ours.cert_file, key_file=ours.key_file)
        assert len(await _try(etcd, pair, 30)) == 2
        with pytest.raises(Unavailable):
            await _try(etcd, RpcTls(ca_file=ours.ca_file), 1)
        foreign = RpcTls(ca_file=ours.ca_file, cert_file=theirs.cert_file, key_file=theirs.key_file)
        with pytest.raises(Unavailable):
            await _try(etcd, foreign, 1)


async def test_certificates_that_have_changed_are_used_after_a_reconnect(tmp_path: Path) -> None:
    ours, theirs = _files(tmp_path / "ours"), _files(tmp_path / "theirs")
    used = Files(*(tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem")))

    def use(files: Files) -> None:
        for name in ("ca_file", "cert_file", "key_file"):
            shutil.copy(getattr(files, name), getattr(used, name))

    use(ours)
    tls = RpcTls(ca_file=used.ca_file, cert_file=used.cert_file, key_file=used.key_file)
    with running_etcd(tmp_path, tls=used.server(client_auth=True)) as etcd:
        config = EtcdConfig(endpoints=tuple(etcd.endpoints), tls=tls, timeout_seconds=30)
        async with open_etcd(config, random=lambda: 0.5) as store, store.watch(ROOT, 1) as watch:
            await store.txn([], [Put(f"{ROOT}a", b"1")])
            assert [event.key for event in await watch.next()] == [f"{ROOT}a"]
            # From now on, etcd and this process have certificates of another CA.
            use(theirs)
            await trio.to_thread.run_sync(etcd.members[0].restart)
            with trio.fail_after(60):
                await store.txn([], [Put(f"{ROOT}b", b"1")])
                assert [event.key for event in await watch.next()] == [f"{ROOT}b"]
                assert len(await _use(store)) == 2
