"""The keys of an issuer: when they are read, from where, and what happens if they cannot be read."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from structlog.testing import capture_logs
from trio.testing import MockClock

from kafscale.config.tokens import TokenSettings
from kafscale.errors import ConfigError, Unavailable
from kafscale.process import token_keys
from kafscale.process.token_keys import LARGEST_DOCUMENT, TokenKeys, reader
from services.gateway.settings import GatewaySettings
from tests.servers.ports import free_ports
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.key_endpoint import KeyEndpoint, key_endpoint


class Source:
    """Publishes the keys of ``issuer``, unless ``failing``. ``times``: when it was read."""

    def __init__(self) -> None:
        self.issuer = Issuer("first")
        self.failing = False
        self.delay = 0.0
        self.times: list[float] = []

    async def read(self) -> bytes:
        self.times.append(trio.current_time())
        await trio.sleep(self.delay)
        if self.failing:
            raise Unavailable("no answer")
        return self.issuer.document


@asynccontextmanager
async def reading(source: Source, refresh_seconds: float = 3600) -> AsyncIterator[TokenKeys]:
    known = TokenKeys(source.read, refresh_seconds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.run)
        yield known
        nursery.cancel_scope.cancel()


def names(known: TokenKeys) -> list[str]:
    return list(known.current.keys)


async def test_keys_are_read_at_once_and_again_after_the_interval(autojump_clock: MockClock) -> None:
    source = Source()
    async with reading(source, 100) as known:
        await trio.sleep(1)
        assert names(known) == ["first"]
        source.issuer = Issuer("second")
        await trio.sleep(98)
        assert names(known) == ["first"]
        await trio.sleep(2)
        assert names(known) == ["second"]
        assert len(source.times) == 2


async def test_an_outage_is_logged_and_the_former_keys_stay(autojump_clock: MockClock) -> None:
    source = Source()
    source.failing = True
    async with reading(source, 100) as known:
        with capture_logs() as logged:
            await trio.sleep(60)
        assert names(known) == []
        assert {line["event"] for line in logged} == {"keys of tokens not read, retrying"}
        assert logged[0]["error"] == "no answer"
        assert 6 <= len(source.times) <= 20
        source.failing = False
        await trio.sleep(10)
        assert names(known) == ["first"]
        source.failing = True
        await trio.sleep(1000)
        assert names(known) == ["first"]


async def test_a_document_without_keys_does_not_replace_them(autojump_clock: MockClock) -> None:
    source = Source()
    async with reading(source, 100) as known:
        await trio.sleep(1)
        source.issuer.keys = []
        with capture_logs() as logged:
            await trio.sleep(100)
        assert names(known) == ["first"]
        assert "no key" in logged[0]["error"]


async def test_keys_are_read_again_on_demand_at_most_once_in_ten_seconds(autojump_clock: MockClock) -> None:
    source = Source()
    async with reading(source) as known:
        await trio.sleep(1)
        assert not await known.read_again()
        assert len(source.times) == 1
        await trio.sleep(10)
        source.issuer, source.delay = Issuer("second"), 2

        async def wait() -> None:
            assert await known.read_again()
            assert names(known) == ["second"]

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait)
        assert len(source.times) == 2
        assert not await known.read_again()
        assert len(source.times) == 2


async def test_a_client_does_not_wait_long_for_keys(autojump_clock: MockClock) -> None:
    source = Source()
    source.delay = 60
    async with reading(source) as known:
        await trio.sleep(1)
        began = trio.current_time()
        assert not await known.read_again()
        assert trio.current_time() - began == 5


def settings(url: str, ca_file: Path | None = None) -> TokenSettings:
    return TokenSettings(
        token_keys_url=url,
        token_keys_ca_file=None if ca_file is None else str(ca_file),
        token_issuer=ISSUER,
        token_audiences=(AUDIENCE,),
    )


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[KeyEndpoint]:
    with key_endpoint(Issuer(), tmp_path) as made:
        yield made


async def test_keys_are_read_over_https(endpoint: KeyEndpoint) -> None:
    assert await reader(settings(endpoint.url, endpoint.ca_file))() == endpoint.issuer.document


async def test_an_endpoint_with_a_certificate_of_another_ca_is_not_trusted(
    endpoint: KeyEndpoint, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    for ca_file in (tmp_path / "other.pem", None):
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await reader(settings(endpoint.url, ca_file))()
    assert endpoint.requests == 0


async def test_an_endpoint_must_have_the_host_of_its_certificate(endpoint: KeyEndpoint) -> None:
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await reader(settings(endpoint.url.replace("127.0.0.1", "localhost"), endpoint.ca_file))()


def redirect(endpoint: KeyEndpoint) -> None:
    endpoint.status, endpoint.headers = 302, {"location": endpoint.url}


def fail(endpoint: KeyEndpoint) -> None:
    endpoint.status = 500


def answer_too_much(endpoint: KeyEndpoint) -> None:
    endpoint.body = b" " * (LARGEST_DOCUMENT + 1)


@pytest.mark.parametrize(
    ("change", "reason"), [(redirect, "status 302"), (fail, "status 500"), (answer_too_much, "longer")]
)
async def test_other_answers_are_errors(
    endpoint: KeyEndpoint, change: Callable[[KeyEndpoint], None], reason: str
) -> None:
    change(endpoint)
    with pytest.raises(Unavailable, match=reason):
        await reader(settings(endpoint.url, endpoint.ca_file))()
    assert endpoint.requests == 1


async def test_a_silent_endpoint_is_an_error(endpoint: KeyEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "_READ_SECONDS", 0.5)
    endpoint.answering.clear()
    with pytest.raises(Unavailable, match="did not answer"):
        await reader(settings(endpoint.url, endpoint.ca_file))()


async def test_no_endpoint_is_an_error() -> None:
    with pytest.raises(Unavailable, match="ConnectError all attempts to connect"):
        await reader(settings(f"https://127.0.0.1:{free_ports(1)[0]}/keys"))()


async def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "with space.json"
    read = reader(settings(path.as_uri()))
    with pytest.raises(Unavailable, match="No such file"):
        await read()
    path.write_bytes(Issuer().document)
    assert await read() == Issuer().document
    path.write_bytes(b" " * (LARGEST_DOCUMENT + 1))
    with pytest.raises(Unavailable, match="longer"):
        await read()


def test_an_invalid_ca_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(ConfigError, match=rf"JWKS_ENDPOINT_CA_FILE.*{name}"):
            reader(settings("https://127.0.0.1/keys", tmp_path / name))


COMPLETE: dict[str, Any] = {
    "sasl_mechanisms": ("OAUTHBEARER",),
    "token_keys_url": "https://issuer.test/keys",
    "token_issuer": "https://issuer.test",
    "token_audiences": ("kafscale",),
}


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("token_keys_url", "JWKS_ENDPOINT_URL"),
        ("token_issuer", "EXPECTED_ISSUER"),
        ("token_audiences", "EXPECTED_AUDIENCE"),
    ],
)
def test_a_missing_setting_is_named(missing: str, named: str) -> None:
    GatewaySettings(**COMPLETE)
    incomplete = {name: value for name, value in COMPLETE.items() if name != missing}
    with pytest.raises(ConfigError, match=f"KAFSCALE_SASL_OAUTHBEARER_{named}$"):
        GatewaySettings(**incomplete)


def test_listeners_with_oauthbearer_need_an_issuer() -> None:
    with pytest.raises(ConfigError, match=r"KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL$"):
        GatewaySettings(sasl_mechanisms=("OAUTHBEARER",))


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.test/keys",
        "https://user:secret@issuer.test/keys",
        "https:///keys",
        "https://issuer.test:99999/keys",
        "https://issuer.test/a b",
        "https://issuer.täst/keys",
        "file://host/keys",
        "file:keys",
        "/keys.json",
    ],
)
def test_an_invalid_source_of_keys_is_refused_without_its_text(url: str) -> None:
    with pytest.raises(ConfigError, match="JWKS_ENDPOINT_URL") as refused:
        GatewaySettings(token_keys_url=url)
    assert "secret" not in str(refused.value)
