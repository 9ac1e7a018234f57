"""`kafscale certificates`: what it makes is accepted in TLS handshakes, and nothing is overwritten by accident."""

import json
import os
import re
import shlex
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result
from cryptography import x509

from kafscale.config.calls import RpcSettings
from kafscale.config.settings import load
from kafscale.errors import Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.server import RpcServer
from kafscale.rpc.services import bind_storage
from kafscale.rpc.tls import RpcTls
from kafscale.v1.storage_pb2 import FetchRequest
from kafscale_tools.cli.certificate_files import Use, create_authority, issue
from kafscale_tools.cli.main import main
from tests.support.carrier import TIMEOUT, Carrier
from tests.support.gateway.harness import running_gateway

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "security.md"


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["certificates", *map(str, arguments)], catch_exceptions=False)


def _create(directory: Path, name: str, *options: str) -> Result:
    result = _run("create", directory, "--name", name, *options)
    assert result.exit_code == 0, result.output
    return result


def _printed_settings(output: str) -> dict[str, str]:
    return dict(re.findall(r"^ +(KAFSCALE_\w+)=(.+)$", output, re.MULTILINE))


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


async def _call(server: RpcTls, client: RpcTls) -> None:
    """Make one call between services. Raises an ExceptionGroup if the handshake fails."""
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            port = await nursery.start(
                RpcServer([bind_storage(Carrier())], tls=server).run, "127.0.0.1:0", trio.Event()
            )
            async with Channel(f"127.0.0.1:{port}", tls=client) as channel:
                await SegmentStorageClient(channel).fetch(FetchRequest(), timeout=TIMEOUT)
            nursery.cancel_scope.cancel()


async def test_services_with_the_printed_settings_call_each_other(tmp_path: Path) -> None:
    tls = {}
    for name in ("storage-1", "gateway-1"):
        printed = _create(tmp_path / "certs", name, "--host", "127.0.0.1").output
        tls[name] = load(RpcSettings, _printed_settings(printed)).tls()
    server, client = tls["storage-1"], tls["gateway-1"]
    assert server is not None
    assert client is not None
    assert server.require_client_cert
    await _call(server, client)
    _create(tmp_path / "others", "stranger", "--host", "127.0.0.1")
    stranger = replace(client, cert_file=tmp_path / "others/stranger.pem", key_file=tmp_path / "others/stranger.key")
    with pytest.RaisesGroup(Unavailable):
        await _call(server, stranger)
    with pytest.RaisesGroup(Unavailable):
        await _call(server, replace(client, server_name="other.internal"))


async def test_a_client_is_known_to_a_listener_by_its_subject(tmp_path: Path) -> None:
    listener = _printed_settings(_create(tmp_path, "kafka-1", "--host", "localhost", "--host", "127.0.0.1").output)
    required = _printed_settings(_create(tmp_path, "ann", "--client", "--subject", "CN=ann,O=sales").output)
    # No other name is accepted.
    rules = "RULE:^CN=ann,O=sales$/ann/"
    async with running_gateway(
        listeners="SSL://127.0.0.1:0",
        tls_cert_file=listener["KAFSCALE_TLS_CERT_FILE"],
        tls_key_file=listener["KAFSCALE_TLS_KEY_FILE"],
        tls_ca_file=required["KAFSCALE_TLS_CA_FILE"],
        tls_client_auth=required["KAFSCALE_TLS_CLIENT_AUTH"],
        tls_principal_mapping_rules=rules,
    ) as harness:
        trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT
        for host, own, served in (
            ("localhost", "ann", True),
            ("127.0.0.1", "ann", True),
            ("localhost", "kafka-1", False),
            ("other.example", "ann", False),
        ):
            trusting.load_cert_chain(tmp_path / f"{own}.pem", tmp_path / f"{own}.key")
            assert await _is_served(harness.listeners[0].port, trusting, host) is served, (host, own)


async def _is_served(port: int, context: ssl.SSLContext, host: str) -> bool:
    """Whether a Kafka listener answers an ApiVersions request of this client, which expects the host's certificate."""
    stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context, server_hostname=host)
    try:
        with trio.fail_after(TIMEOUT):
            await stream.send_all(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
            return bool(await stream.receive_some())
    except trio.BrokenResourceError:
        return False
    finally:
        await trio.aclose_forcefully(stream)


async def test_the_commands_of_the_security_guide_make_the_files_that_it_configures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text()
    commands = list(dict.fromkeys(re.findall(r"^ *kafscale certificates (.+)$", text, re.MULTILINE)))
    assert {shlex.split(command)[0] for command in commands} == {"create", "show"}
    for command in commands:
        result = _run(*shlex.split(command))
        assert result.exit_code == 0, (command, result.output)
    between_services = dict(re.findall(r"^ +(KAFSCALE_RPC_TLS_\w+)=(.+)$", text, re.MULTILINE))
    tls = load(RpcSettings, between_services).tls()
    assert tls is not None
    await _call(tls, replace(tls, server_name="storage-1.internal"))


def test_a_certificate_is_replaced_only_if_it_is_renewed(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("ca.pem", "ca.key", "storage-1.pem", "storage-1.key")]
    missing = _run("create", tmp_path, "--name", "storage-1", "--host", "a", "--renew")
    assert (missing.exit_code, files[2].exists()) == (1, False)
    _create(tmp_path, "storage-1", "--host", "storage-1.internal", "--host", "fe80::1", "--subject", "CN=one")
    before = [file.read_bytes() for file in files]
    again = _run("create", tmp_path, "--name", "storage-1", "--host", "other.internal")
    assert again.exit_code == 1
    assert "--renew" in again.output
    assert [file.read_bytes() for file in files] == before
    files[3].chmod(0o640)
    _create(tmp_path, "storage-1", "--renew", "--days", "7")
    assert [file.read_bytes() == old for file, old in zip(files, before, strict=True)] == [True, True, False, False]
    renewed = _certificate(files[2])
    names = renewed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["storage-1.internal", "fe80::1"]
    assert renewed.subject.rfc4514_string() == "CN=one"
    remaining = renewed.not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=6) < remaining <= timedelta(days=7)
    # A service that reads it through its group still can.
    assert files[3].stat().st_mode & 0o777 == 0o640
    _create(tmp_path, "storage-1", "--renew", "--host", "new.internal")
    shown = json.loads(_run("show", tmp_path, "-o", "json").output)
    assert [one["hosts"] for one in shown["certificates"]] == [[], ["new.internal"]]


def test_only_the_owner_can_read_keys(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        _create(tmp_path / "certs", "storage-1", "--host", "storage-1.internal")
    finally:
        os.umask(former)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "certs").iterdir()}
    assert modes == {"ca.key": 0o600, "storage-1.key": 0o600, "ca.pem": 0o644, "storage-1.pem": 0o644}


def test_show_lists_certificates_and_fails_if_one_has_expired(tmp_path: Path) -> None:
    _create(tmp_path, "storage-1", "--host", "storage-1.internal", "--host", "10.0.0.2")
    _create(tmp_path, "ann", "--client")
    shown = _run("show", tmp_path)
    assert shown.exit_code == 0
    rows = [re.split(r" {2,}", line) for line in shown.output.splitlines()[1:]]
    assert [(row[0], row[1], row[4]) for row in rows] == [
        ("ca", "ca", "-"),
        ("ann", "client", "-"),
        ("storage-1", "service", "storage-1.internal, 10.0.0.2"),
    ]
    past = datetime.now(UTC) - timedelta(days=30)
    issue(tmp_path, "old", use=Use.SERVICE, subject=None, hosts=("old.internal",), days=29, now=past)
    expired = _run("show", tmp_path)
    assert expired.exit_code == 1
    assert expired.output.endswith("expired: old\n")
    (tmp_path / "broken.pem").write_text("no certificate")
    assert "broken.pem" in _run("show", tmp_path).output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--name", "ca", "--host", "a"], "--name"),
        (["--name", "../storage", "--host", "a"], "--name"),
        (["--name", "a", "--host", "a_b"], "--host"),
        (["--name", "a", "--host", "10.0.0.0/8"], "--host"),
        (["--name", "a", "--client", "--subject", "ann"], "--subject"),
        (["--name", "a", "--client", "--subject", ""], "--subject"),
        (["--name", "a", "--client", "--host", "a"], "has no hosts"),
        (["--name", "a"], "--host"),
        (["--name", "a", "--host", "a", "--days", "0"], "--days"),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_written(tmp_path: Path, options: list[str], named: str) -> None:
    refused = _run("create", tmp_path / "certs", *options)
    assert refused.exit_code == 2
    assert named in refused.output
    assert not (tmp_path / "certs").exists()


def test_a_ca_that_cannot_sign_is_named(tmp_path: Path) -> None:
    def refused(directory: Path) -> str:
        result = _run("create", directory, "--name", "late", "--host", "late.internal")
        assert result.exit_code == 1
        return result.output

    create_authority(tmp_path / "short", 30, datetime.now(UTC))
    assert "the CA ends on" in refused(tmp_path / "short")
    for name in ("swapped", "missing", "garbage", "half"):
        create_authority(tmp_path / name, 3650, datetime.now(UTC))
    (tmp_path / "swapped/ca.key").write_bytes((tmp_path / "short/ca.key").read_bytes())
    (tmp_path / "missing/ca.key").unlink()
    (tmp_path / "garbage/ca.key").write_text("no key")
    (tmp_path / "half/ca.pem").unlink()
    assert "is not the key of" in refused(tmp_path / "swapped")
    assert "missing/ca.key" in refused(tmp_path / "missing")
    assert "garbage/ca.key" in refused(tmp_path / "garbage")
    assert "half/ca.key exists without ca.pem" in refused(tmp_path / "half")
