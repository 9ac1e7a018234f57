"""The console of the one-process mode in a real browser, with users of an OAuth 2.0 issuer and ACLs."""

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.servers.ports import free_ports
from tests.support.broker import KafscaleBroker
from tests.support.clients.confluent import ConfluentClient
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.key_endpoint import key_endpoint

LONG = 60_000
SOON = 20
"""Seconds for which the token of a session that expires is valid."""


def sign_in(page: Page, token: str) -> None:
    page.goto("/topics")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.timeout(240)
def test_a_user_does_what_its_acls_allow_until_its_token_expires(browser: Browser, tmp_path: Path) -> None:
    issuer = Issuer("RSA", "RS256")
    [port] = free_ports(1)
    with key_endpoint(issuer, tmp_path) as endpoint:
        settings = {
            "KAFSCALE_CONSOLE": "true",
            "KAFSCALE_CONSOLE_ADDR": f"127.0.0.1:{port}",
            "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": endpoint.url,
            "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_CA_FILE": str(endpoint.ca_file),
            "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
            "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
            "KAFSCALE_SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS": "0",
            "KAFSCALE_ACLS": "true",
            "KAFSCALE_SUPER_USERS": "User:ann;User:ANONYMOUS",
        }
        broker = KafscaleBroker(tmp_path, settings)
        context = browser.new_context(base_url=f"http://127.0.0.1:{port}")
        context.set_default_timeout(LONG)
        try:
            ConfluentClient(broker.bootstrap).create_topic("orders", partitions=1)
            page = context.new_page()
            sign_in(page, Issuer("other", "RS256").token(time.time() + 600))
            expect(page.get_by_role("alert")).to_contain_text("token")
            sign_in(page, issuer.token(time.time() + 600, sub="eve"))
            expect(page.get_by_role("main")).to_contain_text("User:eve needs DESCRIBE on CLUSTER")
            context.clear_cookies()
            expires_at = time.time() + SOON
            sign_in(page, issuer.token(expires_at))
            expect(page.get_by_role("link", name="orders")).to_be_visible()
            page.wait_for_timeout(max(0, expires_at - time.time()) * 1000 + 500)
            page.get_by_role("link", name="Groups").click()
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        finally:
            context.close()
            broker.stop()
