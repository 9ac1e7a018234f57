"""TLS and mutual TLS between processes, with certificates created by the test."""

import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trustme

from kafscale.errors import ConfigError, Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.server import RpcServer
from kafscale.rpc.services import bind_storage
from kafscale.rpc.tls import RpcTls
from kafscale.v1.storage_pb2 import CommitsRequest, FetchRequest
from tests.support.carrier import TIMEOUT, Carrier


@dataclass(frozen=True)
class Authority:
    """A CA and the certificates it signed, for 127.0.0.1 and for the name storage.internal."""

    ca_file: Path
    cert_file: Path
    key_file: Path
    named_cert_file: Path
    named_key_file: Path

    @property
    def server(self) -> RpcTls:
        return RpcTls(ca_file=self.ca_file, cert_file=self.cert_file, key_file=self.key_file)

    @property
    def mutual_server(self) -> RpcTls:
        return RpcTls(ca_file=self.ca_file, cert_file=self.cert_file, key_file=self.key_file, require_client_cert=True)

    @property
    def anonymous(self) -> RpcTls:
        return RpcTls(ca_file=self.ca_file)


def _authority(directory: Path) -> Authority:
    directory.mkdir()
    ca = trustme.CA()
    made = Authority(*(directory / name for name in ("ca.pem", "cert.pem", "key.pem", "named.pem", "named-key.pem")))
    ca.cert_pem.write_to_path(made.ca_file)
    for name, cert_file, key_file in (
        ("127.0.0.1", made.cert_file, made.key_file),
        ("storage.internal", made.named_cert_file, made.named_key_file),
    ):
        issued = ca.issue_cert(name)
        issued.cert_chain_pems[0].write_to_path(cert_file)
        issued.private_key_pem.write_to_path(key_file)
    return made


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return _authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return _authority(tmp_path_factory.mktemp("tls") / "theirs")


async def _talk(server: RpcTls | None, client: RpcTls | None) -> None:
    """Make one call and receive one stream message. Raise the error that the client sees."""
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            run = RpcServer([bind_storage(Carrier())], tls=server).run
            port = await nursery.start(run, "127.0.0.1:0", trio.Event())
            try:
                async with Channel(f"127.0.0.1:{port}", tls=client) as channel:
                    storage = SegmentStorageClient(channel)
                    async with storage.commits(CommitsRequest()) as stream:
                        assert (await stream.receive()).ready
                    await storage.fetch(FetchRequest(), timeout=TIMEOUT)
            finally:
                nursery.cancel_scope.cancel()


async def _refused(server: RpcTls | None, client: RpcTls | None) -> None:
    with pytest.RaisesGroup(Unavailable):
        await _talk(server, client)


async def test_a_client_with_the_ca_connects_over_tls(ours: Authority) -> None:
    await _talk(ours.server, ours.anonymous)


async def test_two_certificates_of_one_ca_connect_over_mutual_tls(ours: Authority) -> None:
    await _talk(ours.mutual_server, ours.server)


async def test_certificates_that_have_changed_are_used_without_a_restart(
    ours: Authority, theirs: Authority, tmp_path: Path
) -> None:
    tls = RpcTls(
        ca_file=tmp_path / "ca.pem",
        cert_file=tmp_path / "cert.pem",
        key_file=tmp_path / "key.pem",
        require_client_cert=True,
    )

    def use(authority: Authority) -> None:
        for source in (authority.ca_file, authority.cert_file, authority.key_file):
            shutil.copy(source, tmp_path / source.name)

    async def serve(port: int, stop: trio.Event, task_status: trio.TaskStatus[int]) -> None:
        await RpcServer([bind_storage(Carrier())], tls=tls).run(f"127.0.0.1:{port}", stop, task_status)
        stopped.set()

    async def fetched(channel: Channel) -> bool:
        try:
            await SegmentStorageClient(channel).fetch(FetchRequest(), timeout=TIMEOUT)
        except Unavailable:
            return False
        return True

    use(ours)
    stop, stopped = trio.Event(), trio.Event()
    with trio.fail_after(2 * TIMEOUT):
        async with trio.open_nursery() as nursery:
            port = await nursery.start(serve, 0, stop)
            address = f"127.0.0.1:{port}"
            async with Channel(address, tls=tls) as early:
                assert await fetched(early)
                use(theirs)
                for current, served in ((theirs.server, True), (ours.server, False)):
                    async with Channel(address, tls=current) as channel:
                        assert await fetched(channel) is served
                # A connection stays. The next one needs the new certificates.
                assert await fetched(early)
                stop.set()
                await stopped.wait()
                stop = trio.Event()
                await nursery.start(serve, port, stop)
                while not await fetched(early):  # noqa: ASYNC110  gRPC connects in its own time
                    await trio.sleep(0.1)
                async with SegmentStorageClient(early).commits(CommitsRequest()) as stream:
                    assert (await stream.receive()).ready
                (tmp_path / "cert.pem").write_text("no certificate")
                async with Channel(address, tls=theirs.server) as channel:
                    assert await fetched(channel)
            stop.set()


async def test_connections_of_certificates_that_were_replaced_long_ago_are_closed(
    ours: Authority, tmp_path: Path
) -> None:
    tls = RpcTls(ca_file=Path(shutil.copy(ours.ca_file, tmp_path)))
    with trio.fail_after(2 * TIMEOUT):
        async with trio.open_nursery() as nursery:
            run = RpcServer([bind_storage(Carrier())], tls=ours.server).run
            port = await nursery.start(run, "127.0.0.1:0", trio.Event())
            async with Channel(f"127.0.0.1:{port}", tls=tls) as channel, AsyncExitStack() as stack:
                streams = []
                for _ in range(7):
                    shutil.copy(ours.ca_file, tmp_path / "next.pem")
                    (tmp_path / "next.pem").rename(tls.ca_file)
                    commits = SegmentStorageClient(channel).commits(CommitsRequest())
                    streams.append(await stack.enter_async_context(commits))
                    assert (await streams[-1].receive()).ready
                for stream in streams[:2]:
                    with pytest.raises(Unavailable):
                        await stream.receive()
                for stream in streams[2:]:
                    with trio.move_on_after(0.05) as waiting:
                        await stream.receive()
                    assert waiting.cancelled_caught
            nursery.cancel_scope.cancel()


async def test_mutual_tls_refuses_a_client_without_a_certificate(ours: Authority) -> None:
    await _refused(ours.mutual_server, ours.anonymous)


async def test_mutual_tls_refuses_a_certificate_of_another_ca(ours: Authority, theirs: Authority) -> None:
    stranger = RpcTls(ca_file=ours.ca_file, cert_file=theirs.cert_file, key_file=theirs.key_file)
    await _refused(ours.mutual_server, stranger)


async def test_a_client_refuses_a_server_of_another_ca(ours: Authority, theirs: Authority) -> None:
    await _refused(theirs.server, ours.anonymous)


async def test_plaintext_and_tls_cannot_connect(ours: Authority) -> None:
    await _refused(ours.server, None)
    await _refused(None, ours.anonymous)


async def test_the_servers_name_must_match_the_configured_one(ours: Authority) -> None:
    named = RpcTls(ca_file=ours.ca_file, cert_file=ours.named_cert_file, key_file=ours.named_key_file)
    await _talk(named, RpcTls(ca_file=ours.ca_file, server_name="storage.internal"))
    await _refused(named, ours.anonymous)
    await _refused(named, RpcTls(ca_file=ours.ca_file, server_name="other.internal"))


async def test_unusable_files_are_configuration_errors_that_name_them(ours: Authority, tmp_path: Path) -> None:
    nothing, no_pem = tmp_path / "nothing.pem", tmp_path / "no.pem"
    no_pem.write_text("no certificate")
    cases = [
        (RpcTls(ca_file=nothing), "nothing.pem"),
        (RpcTls(ca_file=no_pem), "no.pem"),
        (RpcTls(ca_file=ours.ca_file, cert_file=nothing, key_file=ours.key_file), "nothing.pem"),
        (RpcTls(ca_file=ours.ca_file, cert_file=no_pem, key_file=ours.key_file), "no.pem"),
        # A key that does not match the certificate.
        (RpcTls(ca_file=ours.ca_file, cert_file=ours.cert_file, key_file=ours.named_key_file), "named-key.pem"),
    ]
    for tls, name in cases:
        with pytest.raises(ConfigError, match=name):
            Channel("127.0.0.1:1", tls=tls)
    for tls, name in cases[2:]:
        with pytest.raises(ConfigError, match=name):
            RpcServer([], tls=tls)
    with pytest.raises(ConfigError, match="needs a certificate"):
        RpcServer([], tls=ours.anonymous)
