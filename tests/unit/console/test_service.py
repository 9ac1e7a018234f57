"""What the console answers to requests before and after it asks a gateway."""

import json
from typing import Any, cast

import grpc
from trio.testing import MockClock

from kafscale.process.http import Request, Response
from kafscale.rpc.errors import StatusError
from services.console.gateways import Gateways
from services.console.histories import Histories
from services.console.records.service import Records
from services.console.service import Console
from services.console.settings import ConsoleSettings
from services.console.watching import Watches

HOST = "127.0.0.1:9099"
OWN, USER = "the-token-of-the-console", "the-token-of-a-user"


class FakeGateways:
    """Gateways that accept the tokens ``accepted``."""

    def __init__(self) -> None:
        self.accepted = {OWN, USER}

    async def read(self, method: Any, request: Any, token: str) -> Any:
        if token not in self.accepted:
            raise StatusError(grpc.StatusCode.UNAUTHENTICATED, "the token has expired")
        return method.reply()


class NoRecords:
    async def read(self, *_: str) -> None:
        return None


def console(gateways: FakeGateways) -> Console:
    settings = ConsoleSettings(console_sign_in="token", admin_token=OWN)
    return Console(
        settings,
        cast(Gateways, gateways),
        cast(Watches, None),
        cast(Records, NoRecords()),
        cast(Histories, None),
        token=OWN,
        viewer_token="",
    )


async def ask(asked: Console, method: str, path: str, body: str = "", **headers: str) -> Response:
    sent = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    answer = await asked.handle(Request(method, path, "", sent, body.encode()))
    assert isinstance(answer, Response)
    return answer


async def signed_in(asked: Console) -> str:
    """Sign the user in, and return the cookie."""
    answer = await ask(asked, "POST", "/api/session", json.dumps({"token": USER}), origin=f"http://{HOST}")
    assert answer.status == 200
    return dict(answer.headers)["set-cookie"].partition(";")[0]


async def test_a_session_ends_when_the_gateways_no_longer_accept_its_token(autojump_clock: MockClock) -> None:
    gateways = FakeGateways()
    asked = console(gateways)
    cookie = await signed_in(asked)
    assert (await ask(asked, "GET", "/api/topics", cookie=cookie)).status == 200
    gateways.accepted.remove(USER)
    for said in ("the token has expired, or is no longer accepted", "not signed in"):
        answer = await ask(asked, "GET", "/api/topics", cookie=cookie)
        assert (answer.status, json.loads(answer.body)) == (401, {"error": said})


async def test_pages_of_foreign_sites_cannot_make_the_console_read(autojump_clock: MockClock) -> None:
    asked = console(FakeGateways())
    cookie = await signed_in(asked)
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert (await ask(asked, "GET", "/api/topics", cookie=cookie, sec_fetch_site=site)).status == status
    assert (await ask(asked, "HEAD", "/api/topics", cookie=cookie)).status == 405
