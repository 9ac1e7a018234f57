"""The sans-IO connection: framing, headers, the order of replies."""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.static.primitive import i16, i32

from kafscale.kafka import codec
from kafscale.kafka.connection import KafkaConnection, ProtocolError, Request
from kafscale.kafka.wire import Buffer
from tests.support.strategies.kio_types import written

MAX = 4 * 1024 * 1024


class Shell:
    """A connection with the state that its shell would keep."""

    def __init__(
        self, max_request_bytes: int = MAX, max_in_flight: int = 128, max_in_flight_bytes: int = 1 << 30
    ) -> None:
        self.wakes = 0
        self.replies: list[int] = []
        self.connection = KafkaConnection(
            flexible=codec.is_flexible,
            on_ready=self._wake,
            on_reply=lambda _, size: self.replies.append(size),
            max_request_bytes=max_request_bytes,
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def pull(self) -> list[Request]:
        requests = []
        while (request := self.connection.next_request()) is not None:
            requests.append(request)
        return requests

    def sent(self) -> bytes:
        return b"".join(self.connection.data_to_send())


def header(api_key: int, version: int, correlation_id: int, client_id: str | None = "test") -> bytes:
    schema = HeaderV2 if codec.is_flexible(api_key, version) else HeaderV1
    return written(
        schema(
            request_api_key=i16(api_key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        )
    )


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request_bytes(correlation_id: int, body: bytes = b"", api_key: int = 3, version: int = 1) -> bytes:
    return frame(header(api_key, version, correlation_id) + body)


def reply_ids(data: bytes) -> list[int]:
    ids = []
    while data:
        size, correlation_id = struct.unpack_from(">ii", data)
        ids.append(correlation_id)
        data = data[4 + size :]
    return ids


@pytest.mark.parametrize(("api_key", "version"), [(0, 8), (0, 9), (3, 0), (3, 12), (18, 2), (18, 4), (20, 0), (1, 18)])
@pytest.mark.parametrize("client_id", [None, "", "héllo"])
def test_headers_of_all_versions_are_read(api_key: int, version: int, client_id: str | None) -> None:
    shell = Shell()
    shell.connection.receive_data(frame(header(api_key, version, 7, client_id) + b"body"))
    (request,) = shell.pull()
    assert (request.api_key, request.api_version, request.correlation_id) == (api_key, version, 7)
    assert request.client_id == client_id
    assert bytes(request.body) == b"body"


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    shell = Shell()
    head = header(3, 12, 1)
    shell.connection.receive_data(frame(head[:-1] + b"\x02\x05\x03abc\x07\x00" + b"body"))
    (request,) = shell.pull()
    assert bytes(request.body) == b"body"


def test_the_old_header_without_client_id_is_read() -> None:
    shell = Shell()
    shell.connection.receive_data(frame(struct.pack(">hhi", 7, 0, 9) + b"\x00\x00\x00\x05"))
    (request,) = shell.pull()
    assert request.client_id is None
    assert bytes(request.body) == b"\x00\x00\x00\x05"


@pytest.mark.parametrize(
    ("api_key", "version", "expected"),
    [(3, 8, b""), (3, 9, b"\x00"), (18, 0, b""), (18, 3, b""), (18, 4, b""), (0, 8, b""), (0, 9, b"\x00")],
)
def test_a_flexible_reply_has_a_flexible_header_except_for_api_versions(
    api_key: int, version: int, expected: bytes
) -> None:
    shell = Shell()
    shell.connection.receive_data(request_bytes(5, api_key=api_key, version=version))
    (request,) = shell.pull()
    request.slot.reply([b"ab", memoryview(b"cd")])
    assert shell.sent() == frame(struct.pack(">i", 5) + expected + b"abcd")


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.data())
def test_requests_are_complete_however_the_bytes_arrive(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(request_bytes(number, body) for number, body in enumerate(bodies))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    shell = Shell()
    seen: list[Request] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        shell.connection.receive_data(stream[start:end])
        seen += shell.pull()
    assert [bytes(request.body) for request in seen] == bodies
    assert [request.correlation_id for request in seen] == list(range(len(bodies)))


def test_requests_are_complete_when_fed_byte_by_byte() -> None:
    shell = Shell()
    for byte in request_bytes(1, b"one") + request_bytes(2, b"") + request_bytes(3, b"three"):
        shell.connection.receive_data(bytes((byte,)))
    assert [bytes(request.body) for request in shell.pull()] == [b"one", b"", b"three"]


def test_a_large_request_in_small_pieces_is_not_copied_repeatedly() -> None:
    payload = header(3, 1, 1) + bytes(MAX - 100)
    stream = memoryview(frame(payload))
    shell = Shell()
    tracemalloc.start()
    try:
        for start in range(0, len(stream), 1000):
            shell.connection.receive_data(bytes(stream[start : start + 1000]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (request,) = shell.pull()
    assert len(request.body) == MAX - 100
    assert peak < 1.5 * MAX


def test_a_request_in_one_piece_is_not_copied_at_all() -> None:
    shell = Shell()
    data = request_bytes(1, b"x" * 1000)
    shell.connection.receive_data(data)
    (request,) = shell.pull()
    assert request.body.obj is data


def test_a_frame_over_the_limit_is_refused_before_it_is_buffered() -> None:
    shell = Shell(max_request_bytes=1000)
    with pytest.raises(ProtocolError):
        shell.connection.receive_data(struct.pack(">i", 1001))


def test_a_frame_over_the_limit_is_refused_if_its_size_arrives_in_pieces() -> None:
    shell = Shell(max_request_bytes=1000)
    size = struct.pack(">i", 1001)
    shell.connection.receive_data(size[:3])
    with pytest.raises(ProtocolError):
        shell.connection.receive_data(size[3:])


def test_a_frame_of_exactly_the_limit_is_accepted() -> None:
    payload = header(3, 1, 1)
    payload += bytes(1000 - len(payload))
    shell = Shell(max_request_bytes=1000)
    shell.connection.receive_data(frame(payload))
    assert len(shell.pull()) == 1


def test_a_negative_frame_size_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Shell().connection.receive_data(b"\xff\xff\xff\xff")


@pytest.mark.parametrize("payload", [b"", b"\x00\x03", b"\x00\x03\x00\x01\x00\x00\x00\x01", header(3, 1, 1)[:-1]])
def test_a_truncated_header_is_refused(payload: bytes) -> None:
    shell = Shell()
    shell.connection.receive_data(frame(payload))
    with pytest.raises(ProtocolError):
        shell.pull()


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_protocol_error(data: bytes) -> None:
    shell = Shell(max_request_bytes=150)
    with contextlib.suppress(ProtocolError):
        shell.connection.receive_data(frame(data))
        shell.pull()


@given(st.permutations(range(6)))
def test_replies_leave_in_the_order_of_the_requests(order: list[int]) -> None:
    shell = Shell()
    shell.connection.receive_data(b"".join(request_bytes(number) for number in range(6)))
    requests = shell.pull()
    sent: list[int] = []
    done: set[int] = set()
    for number in order:
        requests[number].slot.reply([b""])
        done.add(number)
        sent += reply_ids(shell.sent())
        assert sent == list(range(len(sent)))
        assert len(sent) == next((n for n in range(6) if n not in done), 6)
    assert sent == list(range(6))


def test_a_request_without_a_reply_keeps_its_slot_and_sends_nothing() -> None:
    shell = Shell()
    shell.connection.receive_data(b"".join(request_bytes(number) for number in range(3)))
    first, silent, last = shell.pull()
    last.slot.reply([b""])
    silent.slot.skip()
    assert shell.sent() == b""
    first.slot.reply([b""])
    assert reply_ids(shell.sent()) == [0, 2]
    assert shell.connection.in_flight == 0


def test_the_shell_is_woken_only_when_the_head_of_the_queue_is_done() -> None:
    shell = Shell()
    shell.connection.receive_data(request_bytes(0) + request_bytes(1))
    first, second = shell.pull()
    second.slot.reply([b""])
    assert shell.wakes == 0
    first.slot.reply([b""])
    assert shell.wakes == 1


def test_a_request_is_answered_once() -> None:
    shell = Shell()
    shell.connection.receive_data(request_bytes(0))
    (request,) = shell.pull()
    request.slot.reply([b""])
    with pytest.raises(RuntimeError):
        request.slot.reply([b""])


def test_requests_in_flight_are_bounded() -> None:
    shell = Shell(max_in_flight=2)
    shell.connection.receive_data(b"".join(request_bytes(number) for number in range(3)))
    first, _ = shell.pull()
    assert shell.connection.at_limit
    first.slot.reply([b""])
    assert shell.connection.at_limit, "a reply that is not sent still counts"
    shell.sent()
    assert [request.correlation_id for request in shell.pull()] == [2]


def test_bytes_of_requests_in_flight_are_bounded_and_one_request_always_fits() -> None:
    size = len(request_bytes(0)) - 4
    shell = Shell(max_in_flight_bytes=size + 1)
    shell.connection.receive_data(b"".join(request_bytes(number) for number in range(4)))
    first, second = shell.pull()
    assert shell.connection.at_limit
    first.slot.reply([b""])
    shell.sent()
    (third,) = shell.pull()
    second.slot.skip()
    third.slot.reply([b""])
    shell.sent()
    assert [request.correlation_id for request in shell.pull()] == [3]
    assert not shell.connection.at_limit


def test_reply_pieces_are_not_copied() -> None:
    shell = Shell()
    shell.connection.receive_data(request_bytes(0))
    (request,) = shell.pull()
    records: Buffer = bytes(1000)
    request.slot.reply([b"head", records, b"tail"])
    assert any(piece is records for piece in shell.connection.data_to_send())
