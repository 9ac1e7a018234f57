"""TLS between browsers and the console."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpcore
import pytest
import trio
import trustme
from trio_websocket import open_websocket_url

from kafscale.config.calls import RpcSettings
from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.config.network import Address
from kafscale.errors import ConfigError
from kafscale.process import certificates
from kafscale.process.operations import Operations
from services.console.records.settings import RecordsSettings
from services.console.serving import ConsoleParts, serve_console
from services.console.settings import ConsoleSettings

HOST = "127.0.0.1"


class Files:
    """A certificate of the console, by a CA that browsers trust."""

    def __init__(self, directory: Path) -> None:
        self._authority = trustme.CA()
        self.settings = ConsoleSettings(
            console_addr=Address(HOST, 0),
            admin_servers=("127.0.0.1:1",),
            console_tls_cert_file=directory / "cert.pem",
            console_tls_key_file=directory / "key.pem",
        )
        self._directory = directory
        self.issue()

    def issue(self) -> None:
        issued = self._authority.issue_cert(HOST)
        issued.private_key_pem.write_to_path(self._directory / "key.pem")
        issued.cert_chain_pems[0].write_to_path(self._directory / "cert.pem")

    def browser(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def _parts(settings: ConsoleSettings) -> ConsoleParts:
    return ConsoleParts(settings.resolved(), RecordsSettings(), KafkaClientSettings(), RpcSettings())


@asynccontextmanager
async def serving(settings: ConsoleSettings) -> AsyncIterator[str]:
    """A console whose gateways do not answer. Yields its URL."""
    stopping = trio.Event()
    async with trio.open_nursery() as nursery:
        yield await nursery.start(
            serve_console,
            ConsoleParts(settings.resolved(), RecordsSettings(), KafkaClientSettings(), RpcSettings()),
            Operations(),
            stopping,
        )
        stopping.set()


async def test_browsers_use_https_also_for_live_pages_and_nothing_else_is_answered(files: Files) -> None:
    async with (
        serving(files.settings) as url,
        httpcore.AsyncConnectionPool(ssl_context=files.browser()) as browser,
    ):
        assert url.startswith(f"https://{HOST}:")
        assert (await browser.request("GET", url)).status == 200
        live = f"wss{url.removeprefix('https')}live/cluster"
        origin = [(b"origin", url.rstrip("/").encode())]
        with trio.fail_after(10):
            async with open_websocket_url(live, files.browser(), extra_headers=origin) as socket:
                assert "fault" in await socket.get_message()
        with pytest.raises((httpcore.NetworkError, httpcore.ProtocolError)):
            await browser.request("GET", url.replace("https", "http"))


async def test_a_replaced_certificate_is_used_without_a_restart(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_CHECK_SECONDS", 0.01)

    async def presented(url: str) -> bytes | None:
        port = int(url.rstrip("/").rpartition(":")[2])
        async with await trio.open_ssl_over_tcp_stream(HOST, port, ssl_context=files.browser()) as stream:
            await stream.do_handshake()
            certificate: bytes | None = stream.getpeercert(binary_form=True)
            return certificate

    async with serving(files.settings) as url:
        first = await presented(url)
        files.issue()
        with trio.fail_after(10):
            while await presented(url) == first:  # noqa: ASYNC110  nothing reports the reload
                await trio.sleep(0.01)


async def test_a_faulty_file_is_named_with_its_setting(files: Files, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="KAFSCALE_CONSOLE_TLS_KEY_FILE"):
        await serve_console(_parts(files.settings), Operations(), trio.Event())
