"""Debian's Chromium, driven by Playwright."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.servers.tools import tool

_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    # It would look for updates.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run Chromium. Raise ToolMissing without it."""
    chromium = tool("chromium", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_OPTIONS))
        yield browser
        browser.close()
