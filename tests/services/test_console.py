"""The console of the one-process mode: where it is, whom it lets in, and that it does not delay the end."""

import http.client
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from trio_websocket import open_websocket_url

from tests.servers.ports import free_ports
from tests.support.broker import COMMAND, KafscaleBroker

TOKEN = "a-token-of-operators"
_RPC, _CONSOLE = "KAFSCALE_RPC_TLS", "KAFSCALE_CONSOLE_TLS"


@contextmanager
def _running(directory: Path, **settings: str) -> Iterator[tuple[KafscaleBroker, str]]:
    """One process with a console. Yields it, and the console's URL as its log says it."""
    [port] = free_ports(1)
    settings = {"KAFSCALE_CONSOLE": "true", "KAFSCALE_CONSOLE_ADDR": f"127.0.0.1:{port}", **settings}
    broker = KafscaleBroker(directory, settings)
    try:
        [started] = [line for line in (directory / "broker.log").read_text().splitlines() if "console started" in line]
        yield broker, json.loads(started)["url"]
    finally:
        broker.stop()


def _ask(
    url: str, method: str, path: str, content: object = None, **headers: str
) -> tuple[int, Mapping[str, str], Any]:
    """Return status, headers and JSON object of the answer to a page of the console."""
    place = urlsplit(url)
    context = ssl._create_unverified_context() if place.scheme == "https" else None
    connection: http.client.HTTPConnection = (
        http.client.HTTPSConnection(place.netloc, timeout=60, context=context)
        if context
        else http.client.HTTPConnection(place.netloc, timeout=60)
    )
    try:
        sent = {"origin": url.rstrip("/"), **headers}
        connection.request(method, path, None if content is None else json.dumps(content), sent)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read())
    finally:
        connection.close()


async def test_whoever_is_on_the_machine_uses_it_if_nothing_is_secured(tmp_path: Path) -> None:
    with _running(tmp_path) as (broker, url):
        assert urlsplit(url).hostname == "127.0.0.1"
        session = _ask(url, "GET", "/api/session")[2]
        assert (session["signs_in"], session["may_change"]) == (False, True)
        made = {"name": "made-here", "partitions": 2}
        assert _ask(url, "POST", "/api/topics", made, **{"x-csrf-token": session["csrf"]})[0] == 200
        assert [each["name"] for each in _ask(url, "GET", "/api/topics")[2]["topics"]] == ["made-here"]
        live = f"ws{url.removeprefix('http')}live/cluster"
        async with open_websocket_url(live, extra_headers=[(b"origin", url.rstrip("/").encode())]) as page:
            await page.get_message()
            began = time.monotonic()
            assert broker.process.stop(timeout=60) == 0
            # A watch that nobody ends would take as long as KAFSCALE_RPC_DRAIN_TIMEOUT_MS.
            assert time.monotonic() - began < 8


@pytest.mark.parametrize("token", [TOKEN, ""], ids=["with a token and ACLs", "with client certificates only"])
def test_users_of_a_secured_process_sign_in_and_nobody_gets_the_rights_of_its_certificate(
    tmp_path: Path, token: str
) -> None:
    authority = trustme.CA()
    # Not valid for the address that the console connects to, but for that of other callers.
    issued = authority.issue_cert("kafscale.example")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    pair = {"CERT": str(tmp_path / "cert.pem"), "KEY": str(tmp_path / "key.pem")}
    settings = {f"{prefix}_{name}_FILE": path for prefix in (_RPC, _CONSOLE) for name, path in pair.items()}
    settings |= {f"{_RPC}_CA_FILE": str(tmp_path / "ca.pem"), f"{_RPC}_CLIENT_AUTH": "required"}
    settings |= {"KAFSCALE_RPC_ADVERTISED_ADDR": "kafscale.example:9095", "KAFSCALE_ACLS": str(bool(token))}
    # The process's own certificate would be allowed everything.
    settings |= {"KAFSCALE_SUPER_USERS": "User:ANONYMOUS", "KAFSCALE_TLS_PRINCIPAL_MAPPING_RULES": "RULE:.*/ANONYMOUS/"}
    with _running(tmp_path, KAFSCALE_ADMIN_TOKEN=token, **settings) as (_, url):
        assert urlsplit(url).scheme == "https"
        assert _ask(url, "GET", "/api/topics")[0] == 401
        if not token:
            status, _, answer = _ask(url, "POST", "/api/session", {"token": TOKEN})
            assert (status, "accept every token" in answer["error"]) == (409, True)
            return
        assert _ask(url, "POST", "/api/session", {"token": "not-the-right-token"})[0] == 403
        status, headers, _ = _ask(url, "POST", "/api/session", {"token": TOKEN})
        assert status == 200
        cookie = headers["set-cookie"]
        assert cookie.endswith("; HttpOnly; SameSite=Strict; Secure")
        assert _ask(url, "GET", "/api/topics", cookie=cookie.partition(";")[0])[0] == 200


def test_an_address_in_use_ends_the_process_before_it_serves(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        console = f"127.0.0.1:{taken.getsockname()[1]}"
        free = dict.fromkeys((f"KAFSCALE_{name}_ADDR" for name in ("BROKER", "RPC", "HTTP")), "127.0.0.1:0")
        done = subprocess.run(
            COMMAND,
            env={"KAFSCALE_DATA_DIR": str(tmp_path), **free, "KAFSCALE_CONSOLE_ADDR": console},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert "kafscale: KAFSCALE_CONSOLE_ADDR: cannot listen" in done.stderr
    assert '"event": "listening"' not in done.stderr
