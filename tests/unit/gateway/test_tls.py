"""Listeners with TLS: certificates of listeners and of clients, and handshakes that fail."""

import shutil
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trustme
from structlog.testing import capture_logs

from kafscale.config.listeners import Listener
from kafscale.errors import ConfigError
from kafscale.process.client_hello import ClientHello
from kafscale.security.principals import ANONYMOUS, NoRuleApplies, user
from services.gateway.access.tls import ServerTls
from services.gateway.settings import GatewaySettings
from tests.support.gateway.harness import Client, Harness, running_gateway


@dataclass(frozen=True)
class Files:
    """A CA with a server's certificate for 127.0.0.1, and one of a client."""

    directory: Path
    authority: trustme.CA

    @classmethod
    def make(cls, directory: Path, *hosts: str) -> "Files":
        directory.mkdir(exist_ok=True)
        made = cls(directory, trustme.CA())
        made.authority.cert_pem.write_to_path(directory / "ca.pem")
        made.issue(*hosts or ("127.0.0.1",))
        return made

    def issue(self, *hosts: str) -> None:
        issued = self.authority.issue_cert(*hosts)
        issued.private_key_pem.write_to_path(self.directory / "key.pem")
        (self.directory / "cert.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))

    def settings(self, **settings: Any) -> dict[str, Any]:
        return {
            "listeners": "SSL://127.0.0.1:0",
            "tls_cert_file": str(self.directory / "cert.pem"),
            "tls_key_file": str(self.directory / "key.pem"),
            "tls_ca_file": str(self.directory / "ca.pem"),
            **settings,
        }

    def client(self, common_name: str | None = None) -> ssl.SSLContext:
        """A client that trusts the CA, with a certificate of it for ``common_name``."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if common_name is not None:
            self.authority.issue_cert(f"{common_name}@example.org", common_name=common_name).configure_cert(context)
        return context


async def connect(harness: Harness, context: ssl.SSLContext) -> Client:
    port = harness.listeners[0].port
    stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context, https_compatible=True)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError:
        await trio.aclose_forcefully(stream)
        raise
    client = Client(cast(trio.SocketStream, stream))
    harness.clients.append(client)
    return client


async def test_clients_are_served_by_tls(tmp_path: Path) -> None:
    files = Files.make(tmp_path)
    async with running_gateway(**files.settings(tls_min_version="1.3")) as harness:
        client = await connect(harness, files.client())
        assert (await client.ask(18, 0)).error_code == 0
        for number in range(20):
            await harness.topic(f"topic-{number}")
        assert len((await client.ask(3, 1, topics=None)).topics) == 20
        plaintext = await harness.connect()
        await plaintext.send(18, 0, b"")
        assert await plaintext.closed()
        old = files.client()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(trio.BrokenResourceError):
            await connect(harness, old)
        with pytest.raises(trio.BrokenResourceError):
            await connect(harness, ssl.create_default_context())
        assert (await client.ask(18, 0)).error_code == 0
        assert harness.parts.counters.handshakes_failed == 3


@pytest.mark.parametrize(("required", "served"), [("required", False), ("requested", True), ("none", True)])
async def test_clients_without_a_certificate(tmp_path: Path, required: str, served: bool) -> None:
    files = Files.make(tmp_path)
    async with running_gateway(**files.settings(tls_client_auth=required)) as harness:
        with_one = await connect(harness, files.client("ann"))
        assert (await with_one.ask(18, 0)).error_code == 0
        try:
            client = await connect(harness, files.client())
            answered = (await client.ask(18, 0)).error_code == 0
        except (trio.BrokenResourceError, EOFError):
            answered = False
        assert answered is served


async def test_a_silent_client_does_not_keep_its_connection(tmp_path: Path) -> None:
    files = Files.make(tmp_path)
    async with running_gateway(**files.settings(handshake_ms=200, max_unauthenticated=1)) as harness:
        silent = await harness.connect()
        await silent.stream.send_all(b"\x16")
        assert await (await harness.connect()).closed()
        assert await silent.closed()
        assert (await (await connect(harness, files.client())).ask(18, 0)).error_code == 0


async def test_an_error_in_a_handshake_ends_no_other_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files.make(tmp_path)
    async with running_gateway(**files.settings()) as harness:
        client = await connect(harness, files.client())
        assert (await client.ask(18, 0)).error_code == 0

        def broken(*_: object) -> None:
            raise KeyError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr(ServerTls, "principal", broken)
            with capture_logs() as logged:
                assert await (await connect(harness, files.client())).closed()
        assert "connection failed" in [line["event"] for line in logged]
        assert (await client.ask(18, 0)).error_code == 0
        assert (await (await connect(harness, files.client())).ask(18, 0)).error_code == 0


async def test_a_handshake_does_not_delay_the_end(tmp_path: Path) -> None:
    files = Files.make(tmp_path)
    async with running_gateway(**files.settings()) as harness:
        silent = await harness.connect()
        await silent.stream.send_all(b"\x16")
        await trio.sleep(0.05)
        with trio.fail_after(2):
            harness.stop.set()
            await harness.stopped.wait()


def _tls(files: Files, **settings: Any) -> ServerTls:
    loaded = GatewaySettings(**files.settings(**settings))
    return ServerTls(loaded, loaded.resolve())


def test_clients_are_checked_by_the_ca_of_the_listener_that_they_connect_to(tmp_path: Path) -> None:
    inner, outer = Files.make(tmp_path / "in", "in.example"), Files.make(tmp_path / "out", "out.example")
    settings = GatewaySettings(
        listeners="IN://:1,OUT://:2,SAME://:3",
        advertised_listeners="IN://in.example:1,OUT://out.example:2,SAME://in.example:3",
        security_protocol_map="IN:SSL,OUT:SSL,SAME:SSL",
        tls_client_auth="required",
        tls_cert_file=f"{tmp_path}/{{listener}}/cert.pem",
        tls_key_file=f"{tmp_path}/{{listener}}/key.pem",
        tls_ca_file=f"{tmp_path}/{{listener}}/ca.pem",
    )
    shutil.copytree(tmp_path / "out", tmp_path / "same")
    listeners = settings.resolve()
    tls = ServerTls(settings, listeners)

    def client(own: Files) -> ssl.SSLContext:
        context = own.client("ann")
        for each in (inner, outer):
            each.authority.configure_trust(context)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    assert _issued(tls, listeners[0], client(inner), "out.example") == {"out.example"}
    with pytest.raises(ssl.SSLError):
        _issued(tls, listeners[0], client(outer), "out.example")
    # A listener presents its own certificate for its own host, which may be that of others too.
    assert _issued(tls, listeners[2], client(outer), "in.example") == {"out.example"}


def _issued(tls: ServerTls, listener: Listener, client: ssl.SSLContext, host: str) -> set[str]:
    """Return the host names in the certificate that a client gets from a listener."""
    at_client, at_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client.check_hostname = False
    caller = client.wrap_bio(at_client, at_server, server_hostname=host)
    with pytest.raises(ssl.SSLWantReadError):
        caller.do_handshake()
    hello = at_server.read()
    at_server.write(hello)
    called = tls.context(listener, ClientHello().feed(hello) or "").wrap_bio(at_server, at_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for each in (caller, called):
            try:
                each.do_handshake()
                done.add(each)
            except ssl.SSLWantReadError:
                pass
    certificate = caller.getpeercert()
    assert certificate is not None
    return {str(name[1]) for name in certificate["subjectAltName"]}


def test_changed_certificates_are_used_and_faulty_ones_are_not(tmp_path: Path) -> None:
    files = Files.make(tmp_path, "old.example")
    tls, (listener,) = _tls(files), GatewaySettings(**files.settings()).resolve()
    assert _issued(tls, listener, files.client(), "x") == {"old.example"}
    files.issue("new.example")
    tls.contexts.reload()
    assert _issued(tls, listener, files.client(), "x") == {"new.example"}
    (tmp_path / "cert.pem").write_text("no certificate")
    with capture_logs() as logged:
        tls.contexts.reload()
        tls.contexts.reload()
        (tmp_path / "key.pem").unlink()
        tls.contexts.reload()
        tls.contexts.reload()
    assert [line["log_level"] for line in logged] == ["error", "error"]
    assert _issued(tls, listener, files.client(), "x") == {"new.example"}
    files.issue("newest.example")
    tls.contexts.reload()
    assert _issued(tls, listener, files.client(), "x") == {"newest.example"}


def test_a_listener_has_its_own_certificate_and_is_found_by_its_host(tmp_path: Path) -> None:
    files = Files.make(tmp_path / "in", "in.example")
    outer = Files(tmp_path / "out", files.authority)
    outer.directory.mkdir()
    outer.issue("out.example")
    settings = GatewaySettings(
        listeners="IN://:1,OUT://:2",
        advertised_listeners="IN://in.example:1,OUT://out.example:2",
        security_protocol_map="IN:SSL,OUT:SSL",
        tls_cert_file=f"{tmp_path}/{{listener}}/cert.pem",
        tls_key_file=f"{tmp_path}/{{listener}}/key.pem",
    )
    listeners = settings.resolve()
    tls = ServerTls(settings, listeners)
    assert _issued(tls, listeners[0], files.client(), "other.example") == {"in.example"}
    assert _issued(tls, listeners[1], files.client(), "other.example") == {"out.example"}
    assert _issued(tls, listeners[0], files.client(), "OUT.example") == {"out.example"}


def test_a_certificate_gives_the_name_of_the_user(tmp_path: Path) -> None:
    files = Files.make(tmp_path)
    der = ssl.PEM_cert_to_DER_cert(
        files.authority.issue_cert("ann@example.org", common_name="Ann").cert_chain_pems[0].bytes().decode()
    )
    assert _tls(files).principal(None) == ANONYMOUS
    assert str(_tls(files).principal(der)).startswith("User:CN=Ann,")
    mapped = _tls(files, tls_principal_mapping_rules="RULE:^CN=([^,]+),.*$/$1/L")
    assert mapped.principal(der) == user("ann")
    with pytest.raises(NoRuleApplies, match="cannot be read"):
        _tls(files).principal(b"no certificate")
    with pytest.raises(NoRuleApplies):
        _tls(files, tls_principal_mapping_rules="RULE:^CN=Bob.*$/bob/").principal(der)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"tls_key_file": "nowhere.pem"}, "nowhere.pem"),
        ({"tls_ca_file": "key.pem", "tls_client_auth": "required"}, "KAFSCALE_TLS_CA_FILE"),
        ({"tls_ciphers": "no-such-cipher"}, "KAFSCALE_TLS_CIPHERS"),
        ({"tls_cert_file": "ca.pem"}, "KAFSCALE_TLS_CERT_FILE"),
    ],
)
def test_a_faulty_setting_is_named(tmp_path: Path, settings: dict[str, str], named: str) -> None:
    files = Files.make(tmp_path)
    paths = {name: str(tmp_path / value) if name.endswith("_file") else value for name, value in settings.items()}
    with pytest.raises(ConfigError, match=named):
        _tls(files, **paths)
