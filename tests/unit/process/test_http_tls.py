"""TLS on the HTTP port: who can read health and metrics, and certificates that change."""

import json
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpcore
import pytest
import structlog
import trio
import trustme
from trio.testing import MockClock

from kafscale.config.network import Address, HttpSettings
from kafscale.errors import ConfigError
from kafscale.process import certificates
from kafscale.process.operations import Operations

HOST = "127.0.0.1"
DOCKERFILE = Path(__file__).parents[3] / "Dockerfile"


class Files:
    """A CA with a server's certificate, in a directory."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.settings = HttpSettings(
            http_addr=Address(HOST, 0),
            http_tls_cert_file=directory / "cert.pem",
            http_tls_key_file=directory / "key.pem",
        )
        self.directory = directory
        self.issue(HOST)
        self.authority.cert_pem.write_to_path(directory / "ca.pem")

    def issue(self, *hosts: str) -> None:
        issued = self.authority.issue_cert(*hosts)
        issued.private_key_pem.write_to_path(self.directory / "key.pem")
        issued.cert_chain_pems[0].write_to_path(self.directory / "cert.pem")

    def requiring(self) -> HttpSettings:
        """Settings by which clients need a certificate of the CA."""
        return HttpSettings(
            http_addr=self.settings.http_addr,
            http_tls_cert_file=self.settings.http_tls_cert_file,
            http_tls_key_file=self.settings.http_tls_key_file,
            http_tls_ca_file=self.directory / "ca.pem",
        )

    def client(self, *, known: bool = False) -> ssl.SSLContext:
        """A client that trusts the CA, with a certificate of it if it is ``known``."""
        context = ssl.create_default_context(cafile=self.directory / "ca.pem")
        if known:
            self.authority.issue_cert("prometheus@example.org").configure_cert(context)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def operating(settings: HttpSettings) -> AsyncIterator[int]:
    """The HTTP endpoints of a ready process. Yields the port."""
    with structlog.testing.capture_logs() as logs:
        async with Operations.open(settings, "storage", trio.Event()) as operations:
            operations.health.start()
            yield next(log["port"] for log in logs if log["event"] == "HTTP server started")


async def status(port: int, client: ssl.SSLContext, *, scheme: str = "https") -> int:
    """Return the status of /readyz, or 0 if the server refuses the client or the other way round."""
    async with httpcore.AsyncConnectionPool(ssl_context=client) as pool:
        try:
            with trio.fail_after(5):
                return (await pool.request("GET", f"{scheme}://{HOST}:{port}/readyz")).status
        except (httpcore.NetworkError, httpcore.ProtocolError):
            return 0


async def test_only_tls_with_a_trusted_certificate_is_answered(files: Files, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with operating(files.settings) as port:
        assert await status(port, files.client()) == 200
        assert await status(port, Files(tmp_path / "other").client()) == 0
        assert await status(port, files.client(), scheme="http") == 0
        assert await status(port, files.client()) == 200


async def test_with_a_ca_only_clients_that_it_knows_are_answered(files: Files, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = files.client()
    Files(tmp_path / "other").authority.issue_cert("stranger@example.org").configure_cert(stranger)
    async with operating(files.requiring()) as port:
        assert await status(port, files.client(known=True)) == 200
        assert await status(port, files.client()) == 0
        assert await status(port, stranger) == 0


async def test_a_replaced_certificate_is_used_without_a_restart(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_CHECK_SECONDS", 0.01)
    async with operating(files.settings) as port, httpcore.AsyncConnectionPool(ssl_context=files.client()) as early:
        url = f"https://{HOST}:{port}/readyz"
        assert (await early.request("GET", url)).status == 200
        files.authority = trustme.CA()
        files.issue(HOST)
        files.authority.cert_pem.write_to_path(files.directory / "ca.pem")
        with trio.fail_after(10):
            while await status(port, files.client()) != 200:  # noqa: ASYNC110  nothing reports the reload
                await trio.sleep(0.01)
        # Connections stay.
        assert (await early.request("GET", url)).status == 200
        assert len(early.connections) == 1
        (files.directory / "cert.pem").write_text("no certificate")
        await trio.sleep(0.05)
        assert await status(port, files.client()) == 200


async def test_a_handshake_is_bounded_in_time(files: Files, autojump_clock: MockClock) -> None:
    async with operating(files.settings) as port, await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(b"\x16")
        with trio.fail_after(30):
            assert await stream.receive_some(100) == b""


async def test_the_health_check_of_the_image_uses_tls_if_it_is_set(files: Files) -> None:
    found = re.search(r"^HEALTHCHECK .*\n +CMD (.+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert found is not None
    _, *command = json.loads(found[1])
    environment = {
        f"KAFSCALE_HTTP_TLS_{name.upper()}_FILE": str(files.directory / f"{name}.pem") for name in ("cert", "key")
    }
    for settings, environ in (
        (files.requiring(), environment),
        (files.settings, environment),
        (HttpSettings(http_addr=files.settings.http_addr), {}),
    ):
        async with operating(settings) as port:
            here = [part.replace("9093", str(port)) for part in command]
            done = await trio.run_process([sys.executable, *here], env=environ, capture_stdout=True)
            assert json.loads(done.stdout)["ready"] is True


@pytest.mark.parametrize(
    ("name", "setting"), [("cert.pem", "CERT_FILE"), ("key.pem", "KEY_FILE"), ("ca.pem", "CA_FILE")]
)
async def test_a_faulty_file_is_named_with_its_setting(files: Files, name: str, setting: str) -> None:
    (files.directory / name).write_text("nothing")
    with pytest.raises(ConfigError, match=f"KAFSCALE_HTTP_TLS_{setting}.*{name}"):
        async with operating(files.requiring()):
            pass
