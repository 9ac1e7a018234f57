"""`kafscale produce` and `kafscale consume` on listeners with TLS, SASL and ACLs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from click.testing import Result

from kafscale.kafka_client.connection import Connection, Login
from kafscale.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafscale_tools.cli import records
from kafscale_tools.cli.exits import Exit
from tests.support.gateway.admin_server import AdminServer, admin_server
from tests.support.gateway.harness import NOW_MS

PASSWORD = "correct horse, battery=staple"
USER = ("--user", "admin")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A CA, a certificate and key of it for 127.0.0.1, another CA, and files with passwords."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    issued = ca.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "wrong").write_text("wrong-password\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _gateways_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "wall_clock_ms", lambda: NOW_MS)


@contextmanager
def serving(files: Path, protocol: str, **settings: Any) -> Iterator[AdminServer]:
    """A gateway with a topic and a listener with TLS."""
    tls = {f"tls_{name}_file": str(files / f"{name}.pem") for name in ("ca", "cert", "key")}
    with admin_server(listeners=f"{protocol}://127.0.0.1:0", **tls, **settings) as server:
        server.there(server.harness.topic, "t")
        yield server


@contextmanager
def with_sasl(files: Path, **settings: Any) -> Iterator[AdminServer]:
    """Such a gateway with the user admin."""
    given = {"bootstrap_user": "admin", "bootstrap_password": PASSWORD, **settings}
    with serving(files, "SASL_SSL", **given) as server:
        yield server


def run(server: AdminServer, command: str, files: Path, *options: str, **environ: str) -> Result:
    tls = ("--ca-file", str(files / "ca.pem"))
    return server.run(command, "t", *tls, *options, input="a\nb\n", **environ)


def sasl(files: Path, password: str = "password", mechanism: str = "SCRAM-SHA-512") -> tuple[str, ...]:
    file = str(files / password)
    return ("--security-protocol", "SASL_SSL", "--mechanism", mechanism, *USER, "--password-file", file)


def test_records_are_written_and_read_with_each_mechanism(files: Path) -> None:
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    with with_sasl(files, sasl_mechanisms=mechanisms) as server:
        for mechanism in mechanisms:
            done = run(server, "produce", files, *sasl(files, mechanism=mechanism))
            assert (done.exit_code, done.output) == (0, "")
            found = run(server, "consume", files, *sasl(files, mechanism=mechanism))
            assert (found.exit_code, found.stdout[:4]) == (0, "a\nb\n")
            wrong = run(server, "produce", files, *sasl(files, "wrong", mechanism))
            assert (wrong.exit_code, wrong.stderr[:29]) == (Exit.DENIED, "Error: authentication failed:")
            assert "wrong-password" not in wrong.output
        variables = {
            "KAFSCALE_CLIENT_SECURITY_PROTOCOL": "sasl_ssl",
            "KAFSCALE_CLIENT_CA_FILE": str(files / "ca.pem"),
            "KAFSCALE_CLIENT_USER": "admin",
            "KAFSCALE_CLIENT_PASSWORD": PASSWORD,
        }
        assert server.run("consume", "t", **variables).stdout == "a\nb\n" * 3


def test_a_listener_that_is_not_trusted_gets_no_password(files: Path) -> None:
    with with_sasl(files) as server:
        options = ("--ca-file", str(files / "other.pem"), *sasl(files))
        found = server.run("consume", "t", *options)
        assert found.exit_code == Exit.UNAVAILABLE
        assert "the broker's certificate is not accepted: unable to get local issuer certificate" in found.stderr
        port = server.harness.listeners[0].port
        elsewhere = run(server, "consume", files, *sasl(files), "-b", f"localhost:{port}")
        assert elsewhere.exit_code == Exit.UNAVAILABLE
        assert "the broker's certificate is not accepted: Hostname mismatch" in elsewhere.stderr


def test_a_mechanism_that_the_listener_does_not_offer_is_named(files: Path) -> None:
    with with_sasl(files) as server:
        found = run(server, "consume", files, *sasl(files, mechanism="PLAIN"))
    message = "Error: the listener does not offer PLAIN, only SCRAM-SHA-256, SCRAM-SHA-512\n"
    assert (found.exit_code, found.stderr) == (Exit.WRONG, message)


def test_a_client_certificate_is_presented(files: Path) -> None:
    with serving(files, "SSL", tls_client_auth="required") as server:
        pair = ("--cert-file", str(files / "cert.pem"), "--key-file", str(files / "key.pem"))
        ssl_ = ("--security-protocol", "ssl")
        assert run(server, "produce", files, *ssl_, *pair).exit_code == 0
        assert run(server, "consume", files, *ssl_, *pair).stdout == "a\nb\n"
        without = run(server, "consume", files, *ssl_)
        assert (without.exit_code, "CERTIFICATE_REQUIRED" in without.stderr) == (Exit.UNAVAILABLE, True)
        # The listener has no SASL.
        other = run(server, "consume", files, *pair, *sasl(files))
        assert (other.exit_code, "ILLEGAL_SASL_STATE" in other.stderr) == (Exit.WRONG, True)


def test_what_no_acl_allows_is_denied(files: Path) -> None:
    def allow(operation: Operation) -> Acl:
        return Acl(
            ResourceType.TOPIC, PatternType.LITERAL, "t", "User:admin", "*", operation, permission=Permission.ALLOW
        )

    with with_sasl(files, acls=True) as server:
        for command in ("produce", "consume"):
            found = run(server, command, files, *sasl(files))
            assert (found.exit_code, found.stderr) == (Exit.DENIED, "Error: No ACL allows access to the topic t.\n")
        allowed = server.harness.parts.acls.create
        server.there(allowed, [allow(Operation.DESCRIBE)])
        for denied, following in (("produce", Operation.WRITE), ("consume", Operation.READ)):
            found = run(server, denied, files, *sasl(files))
            assert (found.exit_code, "no ACL allows it" in found.stderr) == (Exit.DENIED, True)
            server.there(allowed, [allow(following)])
            assert run(server, "produce", files, *sasl(files)).exit_code == 0
        assert run(server, "consume", files, *sasl(files)).stdout == "a\nb\n" * 2


def test_a_session_that_has_ended_is_renewed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with with_sasl(files, sasl_max_reauth_ms=3_600_000) as server:
        logins = 0
        authenticate = Connection.authenticate

        async def ended(made: Connection, login: Login) -> None:
            nonlocal logins
            logins += 1
            await authenticate(made, login)
            assert 0 < made._expires_at - trio.current_time() <= 3600
            made._expires_at = trio.current_time()

        monkeypatch.setattr(Connection, "authenticate", ended)
        assert run(server, "produce", files, *sasl(files)).exit_code == 0
        # Metadata, InitProducerId and Produce.
        assert logins == 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--user", "ann"), "KAFSCALE_CLIENT_USER"),
        (("--ca-file", "ca.pem"), "KAFSCALE_CLIENT_CA_FILE"),
        (("--security-protocol", "SASL_PLAINTEXT", "--user", "ann"), "KAFSCALE_CLIENT_PASSWORD_FILE"),
        (("--security-protocol", "SASL_SSL", "--password-file", "password"), "KAFSCALE_CLIENT_USER"),
        (("--security-protocol", "SASL_PLAINTEXT", *USER, "--password-file", "missing"), "missing cannot be read"),
        (("--security-protocol", "SASL_PLAINTEXT", *USER, "--password-file", "empty"), "empty is empty"),
        (("--security-protocol", "SSL", "--ca-file", "missing"), "KAFSCALE_CLIENT_CA_FILE: missing"),
        (("--security-protocol", "SSL", "--ca-file", "password"), "KAFSCALE_CLIENT_CA_FILE: password"),
        (("--security-protocol", "SSL", "--cert-file", "cert.pem"), "KAFSCALE_CLIENT_KEY_FILE"),
        (("--security-protocol", "SSL", "--cert-file", "cert.pem", "--key-file", "ca.pem"), "not a certificate and"),
        (("--security-protocol", "TLS"), "TLS"),
        (("--mechanism", "GSSAPI"), "GSSAPI"),
    ],
)
def test_wrong_options_are_refused(
    files: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], named: str
) -> None:
    monkeypatch.chdir(files)
    (files / "empty").write_text("\n")
    found = AdminServer("127.0.0.1:1", None, None).run("consume", "t", *options)  # type: ignore[arg-type]
    assert (found.exit_code, named in found.stderr) == (Exit.WRONG, True), found.stderr
    assert PASSWORD not in found.output
