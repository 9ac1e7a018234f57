"""The console of the one-process mode in a real browser by https: with TLS of its own, and behind a proxy with TLS."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trustme
from playwright.sync_api import Browser, expect

from tests.servers.ports import free_ports
from tests.support.broker import KafscaleBroker

TOKEN = "a-token-of-operators"
LONG = 60_000


@contextmanager
def _proxy(context: ssl.SSLContext, port: int, target: int) -> Iterator[None]:
    """Decrypt connections at ``port`` of 127.0.0.1, and pass on their bytes to ``target``."""
    started = threading.Event()
    token: trio.lowlevel.TrioToken | None = None
    scope = trio.CancelScope()

    async def copy(source: trio.abc.ReceiveStream, sink: trio.abc.SendStream, nursery: trio.Nursery) -> None:
        try:
            while data := await source.receive_some(65_536):
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        nursery.cancel_scope.cancel()

    async def handle(client: trio.abc.Stream) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", target) as server, trio.open_nursery() as nursery:
            nursery.start_soon(copy, client, server, nursery)
            nursery.start_soon(copy, server, client, nursery)

    async def run() -> None:
        nonlocal token
        token = trio.lowlevel.current_trio_token()
        with scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(trio.serve_ssl_over_tcp, handle, port, context)
                started.set()

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    try:
        assert started.wait(30)
        yield
    finally:
        assert token is not None
        token.run_sync_soon(scope.cancel)
        thread.join()


@pytest.mark.parametrize("proxied", [False, True], ids=["with TLS of its own", "behind a proxy"])
def test_a_browser_signs_in_and_pages_are_live(browser: Browser, tmp_path: Path, proxied: bool) -> None:
    issued = trustme.CA().issue_cert("127.0.0.1", "console.localhost")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    port, public = free_ports(2)
    settings = {"KAFSCALE_CONSOLE": "true", "KAFSCALE_CONSOLE_ADDR": f"127.0.0.1:{port}", "KAFSCALE_ADMIN_TOKEN": TOKEN}
    if proxied:
        url = f"https://console.localhost:{public}"
        settings["KAFSCALE_CONSOLE_ORIGIN"] = url
    else:
        url = f"https://127.0.0.1:{port}"
        settings |= {
            "KAFSCALE_CONSOLE_TLS_CERT_FILE": str(certificate),
            "KAFSCALE_CONSOLE_TLS_KEY_FILE": str(key),
        }
    terminating = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    terminating.load_cert_chain(certificate, key)
    broker = KafscaleBroker(tmp_path, settings)
    context = browser.new_context(base_url=url, ignore_https_errors=True)
    context.set_default_timeout(LONG)
    try:
        with _proxy(terminating, public, port):
            page = context.new_page()
            page.goto("/instances")
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Sign in").click()
            # Only the WebSocket knows the members.
            expect(page.locator(".card", has_text="storage in this process")).to_be_visible(timeout=LONG)
            [cookie] = context.cookies()
            assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
    finally:
        context.close()
        broker.stop()
