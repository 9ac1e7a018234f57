"""A browser, and a page of the console that each file starts as `console`."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import running_browser
from tests.support.console import Console, opened_page, sign_in


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser, console: Console) -> Iterator[Page]:
    """A page of a browser that is signed in."""
    with opened_page(browser, console) as opened:
        sign_in(opened)
        yield opened
