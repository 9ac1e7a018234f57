"""The console as a process, and pages of it in a browser."""

import http.client
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.servers.cluster import Cluster, ServiceProcess
from tests.servers.ports import free_ports

TOKEN, VIEWER_TOKEN = "a-token-of-operators", "a-token-of-viewers"
# The default of five seconds is too short for a busy machine.
expect.set_options(timeout=30_000)


class Console:
    """A console as a process, and the address at which browsers reach it.

    ``env``: the settings of the cluster, which the console's own follow. ``gateways``: addresses of the Admin service.
    """

    def __init__(self, directory: Path, env: Mapping[str, str], gateways: Iterable[str]) -> None:
        own, health = (f"127.0.0.1:{port}" for port in free_ports(2))
        env = {
            "KAFSCALE_CONSOLE_ADDR": own,
            "KAFSCALE_CONSOLE_SIGN_IN": "token",
            "KAFSCALE_CONSOLE_VIEWER_TOKEN": VIEWER_TOKEN,
            "KAFSCALE_HTTP_ADDR": health,
            "KAFSCALE_ADMIN_SERVER": ",".join(gateways),
            **env,
        }
        self.process = ServiceProcess("console", 0, directory, env)
        self.host = own

    def request(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Send a request with no more than these headers, and return status, headers and body."""
        connection = http.client.HTTPConnection(self.host, timeout=30)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, sent)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()


@contextmanager
def running_console(cluster: Cluster, **settings: str) -> Iterator[Console]:
    """Run a console of a cluster whose KAFSCALE_ADMIN_TOKEN is `TOKEN`."""
    addresses = [gateway.address for gateway in cluster.gateways]
    with started(Console(cluster.directory, {**cluster.env, **settings}, addresses)) as running:
        yield running


@contextmanager
def started(console: Console) -> Iterator[Console]:
    """Run a console until the end, and print the end of its log."""
    console.process.start()
    try:
        console.process.await_ready()
        yield console
    finally:
        console.process.end()
        print(console.process.log.read_text()[-3000:])


@contextmanager
def opened_page(browser: Browser, console: Console, *, dark: bool = False, width: int = 1100) -> Iterator[Page]:
    """Open a page of a browser that is not signed in. Errors of scripts fail the test."""
    errors: list[str] = []
    context = browser.new_context(
        base_url=f"http://{console.host}",
        color_scheme="dark" if dark else "light",
        viewport={"width": width, "height": 800},
    )
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    try:
        yield page
        assert errors == []
    finally:
        context.close()


def sign_in(page: Page, token: str = TOKEN) -> None:
    page.goto("/")
    page.get_by_label(re.compile("Token")).fill(token)
    page.get_by_role("button", name="Sign in").click()
    if token in (TOKEN, VIEWER_TOKEN):
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
