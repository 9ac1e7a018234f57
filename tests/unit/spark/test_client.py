"""The client with real gRPC servers: which instance it asks, and when it retries or gives up."""

import shutil
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from kafscale.errors import ConfigError, CorruptData, KafscaleError, Refused, Unavailable
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.client import PLAN_SCAN, SCAN, TOPICS, Attempts, Client, Untrusted
from kafscale_spark.connection import WINDOW_BYTES, Connection, Tls, Token
from tests.servers.ports import free_ports
from tests.unit.spark.storage import serving

_MIB = 1 << 20


def _answers(*instances: str) -> pb.TopicsReply:
    return pb.TopicsReply(instances=instances)


def test_the_next_instance_is_asked_if_one_is_unreachable() -> None:
    with (
        serving(Topics=lambda *_: _answers("x:1")) as there,
        Client(Connection((f"127.0.0.1:{free_ports(1)[0]}", there))) as client,
    ):
        assert client.call(TOPICS, pb.TopicsRequest()).instances == ["x:1"]


def test_calls_are_retried_until_one_is_answered() -> None:
    asked = []

    def topics(_: pb.TopicsRequest, context: grpc.ServicerContext) -> pb.TopicsReply:
        asked.append(1)
        if len(asked) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return _answers("x:1")

    with serving(Topics=topics) as address, Client(Connection((address,))) as client:
        assert client.call(TOPICS, pb.TopicsRequest()).instances == ["x:1"]
    assert len(asked) == 3


def test_an_incomplete_reply_is_requested_again() -> None:
    asked = []

    def topics(*_: object) -> pb.TopicsReply:
        asked.append(1)
        return _answers(*["x:1"] * len(asked))

    with serving(Topics=topics) as address, Client(Connection((address,))) as client:
        reply = client.call(TOPICS, pb.TopicsRequest(), again=lambda r: "" if len(r.instances) > 2 else "too few")
    assert len(reply.instances) == 3


def test_the_error_names_all_instances_if_none_answers_in_time() -> None:
    nobody = [f"127.0.0.1:{port}" for port in free_ports(2)]
    with Client(Connection(tuple(nobody), retry_seconds=0.3)) as client:
        with pytest.raises(Unavailable, match="no storage instance answered") as raised:
            client.call(TOPICS, pb.TopicsRequest())
        assert all(address in str(raised.value) for address in nobody)


@dataclass(frozen=True)
class Authority:
    """A CA and its certificate for 127.0.0.1. Servers with it accept only clients with one of the same CA."""

    ca: Path
    cert: Path
    key: Path

    @classmethod
    def made(cls, directory: Path) -> "Authority":
        directory.mkdir()
        files = cls(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
        ca = trustme.CA()
        issued = ca.issue_cert("127.0.0.1")
        ca.cert_pem.write_to_path(files.ca)
        issued.cert_chain_pems[0].write_to_path(files.cert)
        issued.private_key_pem.write_to_path(files.key)
        return files

    @property
    def server(self) -> grpc.ServerCredentials:
        pair = self.key.read_bytes(), self.cert.read_bytes()
        return grpc.ssl_server_credentials([pair], self.ca.read_bytes(), require_client_auth=True)


def test_a_trusted_authority_need_not_be_a_root(tmp_path: Path) -> None:
    issuing = trustme.CA().create_child_ca()
    issued, trusted = issuing.issue_cert("127.0.0.1"), tmp_path / "ca.pem"
    issuing.cert_pem.write_to_path(trusted)
    pair = issued.private_key_pem.bytes(), b"".join(each.bytes() for each in issued.cert_chain_pems)
    pieces = [pb.ScanPiece(records=b"records")]
    with (
        serving(
            grpc.ssl_server_credentials([pair]), Topics=lambda *_: _answers("x:1"), Scan=lambda *_: iter(pieces)
        ) as there,
        Client(Connection((there,), Tls(trusted))) as client,
    ):
        assert list(client.call(TOPICS, pb.TopicsRequest()).instances) == ["x:1"]
        with client.stream_at(there, SCAN, pb.ScanRequest()) as found:
            assert [bytes(records) for _, records in found] == [b"records"]


@pytest.mark.timeout(30)
def test_the_error_names_the_reason_if_tls_fails(tmp_path: Path) -> None:
    ours, theirs = Authority.made(tmp_path / "ours"), Authority.made(tmp_path / "theirs")
    known = Tls(ours.ca, ours.cert, ours.key)
    final = [
        (replace(known, ca=theirs.ca), "CERTIFICATE_VERIFY_FAILED"),
        (replace(known, server_name="another"), "Hostname Verification Check failed"),
    ]
    repeated = [
        (None, "perhaps it requires TLS, and kafscale.tls.ca is not set"),
        (Tls(ours.ca), "perhaps it requires a client certificate, and kafscale.tls.cert is not set"),
        (Tls(ours.ca, theirs.cert, theirs.key), "perhaps it does not trust the certificate of kafscale.tls.cert"),
    ]

    def asked(address: str, tls: Tls | None, seconds: float) -> list[str]:
        with Client(Connection((address,), tls, retry_seconds=seconds)) as client:
            return list(client.call(TOPICS, pb.TopicsRequest()).instances)

    def scanned(address: str, tls: Tls | None) -> int:
        with (
            Client(Connection((address,), tls)) as client,
            client.stream_at(address, SCAN, pb.ScanRequest()) as pieces,
        ):
            return sum(len(records) for _, records in pieces)

    def scan(*_: object) -> Iterator[pb.ScanPiece]:
        for offset in range(3):
            yield pb.ScanPiece(first_offset=offset, records=bytes(3 * _MIB))

    with serving(ours.server, Topics=lambda *_: _answers("x:1"), Scan=scan) as there:
        assert asked(there, known, 60) == ["x:1"]
        assert scanned(there, known) == 9 * _MIB
        with pytest.raises(Untrusted, match=r"kafscale\.tls.*CERTIFICATE_VERIFY_FAILED"):
            scanned(there, replace(known, ca=theirs.ca))
        with pytest.raises(Untrusted, match=r"kafscale\.tls.*Hostname Verification Check failed"):
            scanned(there, replace(known, server_name="another"))
        for other, message in repeated:
            with pytest.raises(Unavailable, match=message):
                scanned(there, other)
        for tls, message in final:
            # Immediately, without retries.
            with pytest.raises(Untrusted, match=rf"kafscale\.tls.*{message}"):
                asked(there, tls, 86_400)
        for other, message in repeated:
            with pytest.raises(Unavailable, match=message):
                asked(there, other, 0.3)
    with serving(Topics=lambda *_: _answers()) as plain:
        with pytest.raises(Untrusted, match="WRONG_VERSION_NUMBER"):
            asked(plain, known, 86_400)
        with pytest.raises(Untrusted, match="WRONG_VERSION_NUMBER"):
            scanned(plain, known)


@pytest.mark.timeout(60)
def test_certificates_that_have_changed_are_used_after_a_reconnect(tmp_path: Path) -> None:
    ours, theirs = Authority.made(tmp_path / "ours"), Authority.made(tmp_path / "theirs")
    used = Authority(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")

    def use(authority: Authority) -> None:
        for name in ("ca", "cert", "key"):
            shutil.copy(getattr(authority, name), getattr(used, name))

    def scan(*_: object) -> Iterator[pb.ScanPiece]:
        yield pb.ScanPiece(records=b"records")

    answers = {"Topics": lambda *_: _answers("x:1"), "Scan": scan}
    use(ours)
    there = f"127.0.0.1:{free_ports(1)[0]}"
    with Client(Connection((there,), Tls(used.ca, used.cert, used.key), retry_seconds=30)) as client:
        for current, other in ((ours, theirs), (theirs, ours)):
            use(current)
            with serving(current.server, address=there, **answers):
                assert client.call(TOPICS, pb.TopicsRequest()).instances == ["x:1"]
                with client.stream_at(there, SCAN, pb.ScanRequest()) as found:
                    assert [bytes(records) for _, records in found] == [b"records"]
            use(other)
            with serving(other.server, address=there, **answers):
                # A stream is not repeated by the client, but the next one uses the files.
                with (
                    pytest.raises(Unavailable) as raised,
                    client.stream_at(there, SCAN, pb.ScanRequest()) as found,
                ):
                    list(found)
                assert not isinstance(raised.value, Untrusted)
                with client.stream_at(there, SCAN, pb.ScanRequest()) as found:
                    assert [bytes(records) for _, records in found] == [b"records"]
            # Half of a change is not used, and no reason to give up.
            used.cert.write_text("no certificate")
            with pytest.raises(Unavailable):
                client.call_at(there, TOPICS, pb.TopicsRequest())


def test_a_trusted_instance_is_awaited(tmp_path: Path) -> None:
    """Another instance with an unknown authority does not end the wait."""
    ours, theirs = Authority.made(tmp_path / "ours"), Authority.made(tmp_path / "theirs")
    with (
        serving(theirs.server, Topics=lambda *_: _answers()) as wrong,
        serving(ours.server, Topics=lambda *_: _answers("x:1")) as right,
        Client(Connection((wrong, right), Tls(ours.ca, ours.cert, ours.key))) as client,
    ):
        assert client.call(TOPICS, pb.TopicsRequest()).instances == ["x:1"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.DATA_LOSS, CorruptData),
        (grpc.StatusCode.INVALID_ARGUMENT, ConfigError),
        (grpc.StatusCode.FAILED_PRECONDITION, Refused),
        (grpc.StatusCode.PERMISSION_DENIED, Refused),
        (grpc.StatusCode.ABORTED, KafscaleError),
    ],
)
def test_final_errors_are_not_retried(code: grpc.StatusCode, kind: type[KafscaleError]) -> None:
    asked = []

    def topics(_: pb.TopicsRequest, context: grpc.ServicerContext) -> pb.TopicsReply:
        asked.append(1)
        context.abort(code, "no more: \u00e4")
        raise AssertionError

    def scan(_: pb.ScanRequest, context: grpc.ServicerContext) -> Iterator[pb.ScanPiece]:
        yield pb.ScanPiece(first_offset=1)
        context.abort(code, "no more: \u00e4")

    with serving(Topics=topics, Scan=scan) as address, Client(Connection((address,))) as client:
        with pytest.raises(kind, match="no more: \u00e4"):
            client.call(TOPICS, pb.TopicsRequest())
        with client.stream_at(address, SCAN, pb.ScanRequest()) as pieces:
            assert next(pieces)[0].first_offset == 1
            with pytest.raises(kind, match="no more: \u00e4"):
                next(pieces)
        with pytest.raises(Refused):
            client.call(PLAN_SCAN, pb.PlanScanRequest())
    assert len(asked) == 1


@pytest.mark.timeout(60)
def test_a_token_file_is_read_for_each_call(tmp_path: Path) -> None:
    file, presented = tmp_path / "token", list[str]()

    def checked(context: grpc.ServicerContext) -> None:
        given: dict[str, Any] = dict(context.invocation_metadata())
        presented.append(given["authorization"].removeprefix("Bearer "))
        if presented[-1] == "expired":
            # It is replaced while the call runs.
            file.write_text("fresh")
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token has expired")
        if presented[-1] != "fresh":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is wrong")

    def topics(_: pb.TopicsRequest, context: grpc.ServicerContext) -> pb.TopicsReply:
        checked(context)
        return _answers("x:1")

    def scan(_: pb.ScanRequest, context: grpc.ServicerContext) -> Iterator[pb.ScanPiece]:
        checked(context)
        yield pb.ScanPiece(records=b"records")

    with (
        serving(Topics=topics, Scan=scan) as address,
        Client(Connection((address,), token=Token(file=file), retry_seconds=86_400)) as client,
    ):
        for content in (b"", b"two words", b"\xff"):
            file.write_bytes(content)
            with pytest.raises(ConfigError, match=r"kafscale\.tokenFile: .*token does not contain") as raised:
                client.call(TOPICS, pb.TopicsRequest())
            assert "two words" not in "".join(traceback.format_exception(raised.value))
        file.write_text("wrong-token\n")
        with pytest.raises(Refused, match="the token is wrong") as refused:
            client.call(TOPICS, pb.TopicsRequest())
        assert "wrong-token" not in str(refused.value)
        file.write_text("expired\n")
        assert client.call(TOPICS, pb.TopicsRequest()).instances == ["x:1"]
        # The former token is used while the file is being replaced.
        file.unlink()
        with client.stream_at(address, SCAN, pb.ScanRequest()) as found:
            assert [bytes(records) for _, records in found] == [b"records"]
    assert presented == ["wrong-token", "expired", "fresh", "fresh"]


def test_a_silent_stream_times_out() -> None:
    over = threading.Event()

    def scan(*_: object) -> Iterator[pb.ScanPiece]:
        yield pb.ScanPiece(first_offset=1)
        over.wait(20)

    with serving(Scan=scan) as address, Client(Connection((address,), call_seconds=0.3)) as client:
        try:
            with client.stream_at(address, SCAN, pb.ScanRequest()) as pieces:
                assert next(pieces)[0].first_offset == 1
                with pytest.raises(Unavailable, match=rf"{address}: no reply within 0\.3 s"):
                    next(pieces)
        finally:
            over.set()


def test_a_call_ends_when_its_reader_leaves() -> None:
    ended = threading.Event()

    def scan(_: pb.ScanRequest, context: grpc.ServicerContext) -> Iterator[pb.ScanPiece]:
        context.add_callback(ended.set)
        while context.is_active():
            yield pb.ScanPiece(records=bytes(_MIB))

    with serving(Scan=scan) as address, Client(Connection((address,))) as client:
        with client.stream_at(address, SCAN, pb.ScanRequest()) as pieces:
            next(pieces)
        assert ended.wait(10)


def test_a_slow_reader_does_not_time_out() -> None:
    def scan(*_: object) -> Iterator[pb.ScanPiece]:
        for offset in range(3):
            yield pb.ScanPiece(first_offset=offset)

    with (
        serving(Scan=scan) as address,
        Client(Connection((address,), call_seconds=0.3)) as client,
        client.stream_at(address, SCAN, pb.ScanRequest()) as pieces,
    ):
        found = []
        for piece, _ in pieces:
            threading.Event().wait(0.4)
            found.append(piece.first_offset)
    assert found == [0, 1, 2]


def test_a_slow_reader_is_sent_at_most_one_window_ahead() -> None:
    pieces, sent = 150, 0

    def scan(*_: object) -> Iterator[pb.ScanPiece]:
        nonlocal sent
        for offset in range(pieces):
            yield pb.ScanPiece(first_offset=offset, records=bytes(_MIB))
            sent += 1

    most_unread = 0
    with (
        serving(Scan=scan, Topics=lambda *_: _answers()) as address,
        Client(Connection((address,))) as client,
        client.stream_at(address, SCAN, pb.ScanRequest()) as found,
    ):
        for piece, records in found:
            assert len(records) == _MIB
            assert not piece.records
            if piece.first_offset % 5 == 0:
                # Let the server run ahead.
                threading.Event().wait(0.02)
                client.call(TOPICS, pb.TopicsRequest())
                most_unread = max(most_unread, sent - piece.first_offset - 1)
    assert piece.first_offset == pieces - 1
    # In addition to the window: its excess for one message, and one message each in gRPC and the server.
    assert 0 < most_unread * _MIB <= WINDOW_BYTES + 4 * _MIB


def test_the_instance_that_answered_last_is_asked_first() -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with serving(Topics=lambda *_: _answers()) as there, Client(Connection((nobody, there))) as client:
        client.knows(["c:3", nobody])
        assert client.endpoints == (nobody, there, "c:3")
        client.call(TOPICS, pb.TopicsRequest())
        assert client.endpoints == (there, nobody, "c:3")


def test_pauses_double_and_end_without_progress() -> None:
    now = [0.0]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    attempts = Attempts(3.0, clock=lambda: now[0], sleep=sleep)
    while attempts.pause():
        pass
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.5])
    attempts.progress()
    assert attempts.pause()
    assert pauses[-1] == pytest.approx(0.1)
