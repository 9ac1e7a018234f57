"""Large replies from a socket, for any division into frames and any other frames of the peer.

test_client.py uses real servers.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice, pairwise

import grpc
import pytest

from kafscale_spark import receiving
from kafscale_spark.connection import WINDOW_BYTES, Connection
from kafscale_spark.hpack import encoded
from kafscale_spark.receiving import Failed, Receiving

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_SECONDS = 30.0


def _frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _message(data: bytes, *, compressed: bool = False) -> bytes:
    return struct.pack(">BI", compressed, len(data)) + data


def _headers(flags: int = _END_HEADERS, **headers: str) -> bytes:
    return _frame(_HEADERS, encoded((name.replace("_", "-"), value) for name, value in headers.items()), flags)


_BEGUN = _frame(_SETTINGS, stream=0) + _frame(_HEADERS, b"\x88", _END_HEADERS)
_DONE = _headers(_END_HEADERS | _END_STREAM, grpc_status="0")


class _Peer:
    """A peer that sends ``said`` in parts of this size and records its input until the other end leaves."""

    def __init__(self, sent: bytes, part: int) -> None:
        self._sent = sent
        self._part = part
        self.heard = b""

    def serve(self, listening: socket.socket) -> None:
        with listening.accept()[0] as connected:
            sending = threading.Thread(target=self._send, args=[connected])
            sending.start()
            with suppress(ConnectionError):
                while data := connected.recv(1 << 16):
                    self.heard += data
            sending.join()

    def _send(self, connected: socket.socket) -> None:
        with suppress(ConnectionError):
            for at in range(0, len(self._sent), self._part):
                connected.sendall(self._sent[at : at + self._part])


@contextmanager
def _peer(sent: bytes, part: int = 1 << 20) -> Iterator[tuple[str, _Peer]]:
    peer = _Peer(sent, part)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=peer.serve, args=[listening])
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}", peer
        finally:
            thread.join()


@contextmanager
def _call(address: str, connection: Connection | None = None) -> Iterator[Iterator[memoryview]]:
    call = Receiving(connection or Connection((address,), call_seconds=_SECONDS), address, "/a.B/C", b"request")
    try:
        yield call.replies()
    finally:
        call.close()


@pytest.mark.parametrize("part", [1, 7, 1 << 20])
def test_replies_arrive_for_any_division_into_frames(part: int) -> None:
    messages = [b"first", b"", bytes(range(256)) * 40, b"last"]
    stream = b"".join(map(_message, messages))
    cuts = [0, 1, 4, 5, 9, 12, 900, 901, len(stream)]
    frames = [_frame(_DATA, stream[start:end]) for start, end in pairwise(cuts)]
    frames[3] = _frame(_DATA, b"\x03" + stream[cuts[3] : cuts[4]] + bytes(3), _PADDED)
    trailers = encoded([("grpc-status", "0")])
    sent = [
        *(_BEGUN, *frames[:2], _frame(_PING, b"12345678", stream=0), *frames[2:5], _frame(_DATA)),
        *(_frame(_GOAWAY, struct.pack(">II", 2**31 - 1, 0), stream=0), _frame(99, b"unknown"), *frames[5:]),
        _frame(_HEADERS, b"\x02" + bytes(5) + trailers[:3] + bytes(2), _END_STREAM | _PADDED | _PRIORITY),
        *(_frame(_CONTINUATION, trailers[3:6]), _frame(_CONTINUATION, trailers[6:], _END_HEADERS)),
    ]
    with _peer(b"".join(sent), part) as (address, peer), _call(address) as replies:
        assert [bytes(reply) for reply in replies] == messages
    assert peer.heard.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert _message(b"request") in peer.heard
    assert _frame(_PING, b"12345678", _ACK, 0) in peer.heard
    assert _frame(_SETTINGS, b"", _ACK, 0) in peer.heard


def test_all_replies_use_one_buffer() -> None:
    sent = _BEGUN + b"".join(_frame(_DATA, _message(bytes([n]) * 100)) for n in range(3)) + _DONE
    with _peer(sent) as (address, _), _call(address) as replies:
        first = next(replies)
        assert first == bytes(100)
        next(replies)
        assert first == b"\1" * 100


def _refusals() -> Iterator[tuple[str, bytes, grpc.StatusCode, str]]:
    code = grpc.StatusCode
    ended = _END_HEADERS | _END_STREAM
    yield (
        "status",
        _headers(ended, grpc_status="15", grpc_message="bytes%20are%20lost"),
        code.DATA_LOSS,
        "bytes are lost",
    )
    yield "no such status", _headers(ended, grpc_status="99"), code.UNKNOWN, "^$"
    yield "no status", _headers(ended, other="1"), code.UNKNOWN, "^$"
    yield "http", _frame(_HEADERS, b"\x8d", ended), code.UNAVAILABLE, "HTTP status 404"
    yield "no trailers", _frame(_DATA, b"", _END_STREAM), code.INTERNAL, "without a status"
    yield "within a reply", _frame(_DATA, _message(b"abc")[:-1]) + _DONE, code.INTERNAL, "within a reply"
    yield "within a prefix", _frame(_DATA, b"\0\0") + _DONE, code.INTERNAL, "within a reply"
    yield "compressed", _frame(_DATA, _message(b"abc", compressed=True)), code.INTERNAL, "compressed"
    yield "too large", _frame(_DATA, b"\0" + b"\xff" * 4), code.RESOURCE_EXHAUSTED, "of at most"
    yield "padding", _frame(_DATA, b"\x09", _PADDED), code.INTERNAL, "padding"
    yield "large data", b"\xff\xff\xff\0\0" + struct.pack(">I", 1), code.INTERNAL, "a frame of 16777215 bytes"
    yield "large headers", b"\x01\0\0\x01\4" + struct.pack(">I", 1), code.INTERNAL, "a frame of 65536 bytes"
    block = _frame(_HEADERS, bytes(1 << 14), 0) + _frame(_CONTINUATION, b"\0")
    yield "much of headers", block, code.INTERNAL, "header block goes on"
    yield "no block", _frame(_HEADERS, b"\xff\xff", _END_HEADERS), code.INTERNAL, "header block"
    yield "reset", _frame(_RST_STREAM, b"\0\0\0\7"), code.UNAVAILABLE, "reset"
    yield "not taken", _frame(_GOAWAY, bytes(8) + b"bye", stream=0), code.UNAVAILABLE, "bye"


@pytest.mark.parametrize(("sent", "code", "words"), [pytest.param(*case[1:], id=case[0]) for case in _refusals()])
def test_the_end_of_a_call_is_reported(sent: bytes, code: grpc.StatusCode, words: str) -> None:
    with _peer(_BEGUN + _frame(_DATA, _message(b"one")) + sent) as (address, _), _call(address) as replies:
        assert bytes(next(replies)) == b"one"
        with pytest.raises(Failed, match=words) as found:
            next(replies)
        assert found.value.code is code
        assert next(replies, None) is None


def test_a_lost_connection_differs_from_a_failed_one() -> None:
    def first(serve: Callable[[socket.socket], None]) -> str:
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def answer() -> None:
                with listening.accept()[0] as connected:
                    connected.recv(1)
                    serve(connected)
                    connected.shutdown(socket.SHUT_WR)
                    while connected.recv(1 << 16):
                        pass

            thread = threading.Thread(target=answer)
            thread.start()
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            with _call(address) as replies, pytest.raises(Failed) as found:
                next(replies)
            thread.join()
        assert found.value.code is grpc.StatusCode.UNAVAILABLE
        return found.value.details

    assert first(lambda _: None).startswith("failed to connect: Socket closed")
    assert first(lambda connected: connected.sendall(_BEGUN)).startswith("Socket closed")


def test_a_silent_peer_is_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "KEEPALIVE_TIMEOUT_MS", 100)
    with _peer(_BEGUN) as (address, peer):
        connection = Connection((address,), call_seconds=_SECONDS, keepalive_seconds=0.1)
        with _call(address, connection) as replies, pytest.raises(Failed, match="no sign of life") as found:
            next(replies)
    assert found.value.code is grpc.StatusCode.UNAVAILABLE
    assert _frame(_PING, bytes(8), 0, 0) in peer.heard


def test_an_answered_ping_is_not_a_reply() -> None:
    sent = _BEGUN + _frame(_DATA, _message(b"one")) + _frame(_PING, bytes(8), _ACK, 0)
    with _peer(sent) as (address, _), _call(address, Connection((address,), call_seconds=1.0)) as replies:
        assert list(islice(map(bytes, replies), 1)) == [b"one"]
        with pytest.raises(Failed, match=r"nothing came for 1 s") as found:
            next(replies)
    assert found.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


def _heard(peer: _Peer, frame: bytes) -> None:
    """Wait until the peer has received the frame."""
    until = time.monotonic() + _SECONDS
    while frame not in peer.heard:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_ping_is_answered_while_the_reader_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames before the ping are read ahead, and count as read when the reader takes them."""
    monkeypatch.setattr(receiving, "_LOOK_SECONDS", 0.01)
    large = bytes(range(256)) * (2 * WINDOW_BYTES // 3 // 256)
    second, third = _message(large), _message(b"third")
    sent = [_frame(_DATA, second[at : at + (1 << 20)]) for at in range(0, len(second), 1 << 20)]
    sent = [_BEGUN, _frame(_DATA, _message(b"one")), *sent, _frame(_PING, b"12345678", stream=0)]
    with _peer(b"".join([*sent, _frame(_DATA, third), _DONE])) as (address, peer), _call(address) as replies:
        assert bytes(next(replies)) == b"one"
        _heard(peer, _frame(_PING, b"12345678", _ACK, 0))
        assert struct.pack(">BBI", _WINDOW_UPDATE, 0, 1) not in peer.heard
        assert bytes(next(replies)) == large
        _heard(peer, struct.pack(">BBI", _WINDOW_UPDATE, 0, 1))
        assert [bytes(reply) for reply in replies] == [b"third"]


def test_an_end_during_a_pause_of_the_reader_is_reported_after_earlier_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "_LOOK_SECONDS", 0.01)
    sent = [_BEGUN, *(_frame(_DATA, _message(text)) for text in (b"one", b"two")), _frame(_PING, bytes(8), stream=0)]
    sent += [_frame(_RST_STREAM, b"\0\0\0\7"), _frame(_SETTINGS, stream=0)]
    with _peer(b"".join(sent)) as (address, peer), _call(address) as replies:
        assert bytes(next(replies)) == b"one"
        _heard(peer, _frame(_PING, bytes(8), _ACK, 0))
        assert bytes(next(replies)) == b"two"
        with pytest.raises(Failed, match="reset"):
            next(replies)


def test_a_failure_within_a_frame_is_reported_and_no_byte_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest of the frame arrives after the failure."""
    monkeypatch.setattr(receiving, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(receiving, "KEEPALIVE_TIMEOUT_MS", 100)
    second = _frame(_DATA, _message(b"second"))
    failed = threading.Event()

    def serve(listening: socket.socket) -> None:
        with listening.accept()[0] as connected, suppress(ConnectionError):
            connected.sendall(_BEGUN + _frame(_DATA, _message(b"one")) + second[:-3])
            assert failed.wait(_SECONDS)
            connected.sendall(second[-3:] + second + _DONE)
            while connected.recv(1 << 16):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=[listening])
        thread.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        connection = Connection((address,), call_seconds=_SECONDS, keepalive_seconds=0.1)
        with _call(address, connection) as replies:
            assert bytes(next(replies)) == b"one"
            _await_looking()
            failed.set()
            with pytest.raises(Failed, match="no sign of life"):
                next(replies)
        thread.join()


def test_complete_replies_are_returned_although_the_peer_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """No peer is left to receive window updates."""
    monkeypatch.setattr(receiving, "_LOOK_SECONDS", 0.01)
    large = bytes(WINDOW_BYTES // 2)
    stream = _message(large)
    frames = [_frame(_DATA, stream[at : at + (1 << 20)]) for at in range(0, len(stream), 1 << 20)]
    read = threading.Event()

    def serve(listening: socket.socket) -> None:
        with listening.accept()[0] as connected:
            connected.sendall(b"".join([_BEGUN, _frame(_DATA, _message(b"one")), *frames, _DONE]))
            assert read.wait(_SECONDS)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=[listening])
        thread.start()
        with _call(f"127.0.0.1:{listening.getsockname()[1]}") as replies:
            assert bytes(next(replies)) == b"one"
            _await_looking()
            read.set()
            thread.join()
            assert [bytes(reply) for reply in replies] == [large]


def _await_looking() -> None:
    """Wait until the thread that watches a connection has seen its end."""
    for looking in [each for each in threading.enumerate() if each.name == "kafscale-scan"]:
        looking.join(_SECONDS)
