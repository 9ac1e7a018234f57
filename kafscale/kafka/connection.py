"""One Kafka connection without IO: bytes in, requests out; replies in, bytes out in the order of the requests.

Two rules hold. A frame is at most ``max_request_bytes``, known before its body is kept. Every request takes a slot in a
queue when it is pulled, and only what stands at the head of the queue leaves, so work may overlap and end in any order;
a request that is never answered (acks=0) keeps its place and sends nothing. The queue has room for ``max_in_flight``
requests, and for one more as long as they have less than ``max_in_flight_bytes``.

Formats: https://kafka.apache.org/protocol#protocol_messages (request headers v0 to v2, response headers v0 and v1).
"""

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafscale.errors import CorruptData
from kafscale.kafka.wire import DECODE_ERRORS, Buffer, skip_tags

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
_HEADER_WITH_CLIENT = struct.Struct(">hhih")
_REPLY = struct.Struct(">ii")
_REPLY_WITH_TAGS = struct.Struct(">iib")

_API_VERSIONS = 18
_CONTROLLED_SHUTDOWN = 7


def _nothing() -> None:
    """A callback of nobody."""


def _nothing_of(_: "ReplySlot", __: int) -> None:
    """A callback of nobody."""


class ProtocolError(CorruptData):
    """The client broke the framing or a header; nothing can be answered, the connection has to close."""


class ReplySlot:
    """The place of one request in the order of replies. It is completed once, or abandoned with its connection.

    ``received_at`` is the shell's to set and to use.
    """

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_tagged_header",
        "api_key",
        "buffers",
        "done",
        "received_at",
        "request_bytes",
    )

    def __init__(
        self, connection: "KafkaConnection", api_key: int, correlation_id: int, tagged_header: bool, request_bytes: int
    ) -> None:
        self.api_key = api_key
        self.received_at = 0.0
        self._connection = connection
        self._correlation_id = correlation_id
        self._tagged_header = tagged_header
        self.request_bytes = request_bytes
        self.buffers: Sequence[Buffer] = ()
        self.done = False

    def reply(self, body: Sequence[Buffer]) -> None:
        """Answer with the pieces of a response body, none of which is copied."""
        size = sum(map(len, body))
        if self._tagged_header:
            header = _REPLY_WITH_TAGS.pack(size + 5, self._correlation_id, 0)
        else:
            header = _REPLY.pack(size + 4, self._correlation_id)
        self._complete((header, *body))

    def skip(self) -> None:
        """The request has no reply (acks=0); those behind it may leave."""
        self._complete(())

    def _complete(self, buffers: Sequence[Buffer]) -> None:
        if self.done:
            raise RuntimeError("this request has been answered already")
        self.buffers = buffers
        self.done = True
        self._connection.slot_done(self)


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its header, its undecoded body and the slot for its reply."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    slot: ReplySlot


class KafkaConnection:
    """``flexible(api_key, version)`` says whether the API's version has tagged fields, which its headers follow.

    ``on_reply`` is called with the slot and the size of every reply as it is made, ``on_ready`` when there is something
    to send, or room for another request, that was not there before.
    """

    def __init__(
        self,
        *,
        flexible: Callable[[int, int], bool],
        on_ready: Callable[[], None],
        on_reply: Callable[[ReplySlot, int], None],
        max_request_bytes: int,
        max_in_flight: int,
        max_in_flight_bytes: int,
    ) -> None:
        self._flexible = flexible
        self._on_ready = on_ready
        self._on_reply = on_reply
        self._max_request_bytes = max_request_bytes
        self._max_in_flight = max_in_flight
        self._max_in_flight_bytes = max_in_flight_bytes
        self._in_flight_bytes = 0
        self._frames: deque[memoryview] = deque()
        self._partial = bytearray()
        self._partial_needs = 4
        self._slots: deque[ReplySlot] = deque()

    @property
    def in_flight(self) -> int:
        """Requests that were pulled and whose replies have not left."""
        return len(self._slots)

    @property
    def at_limit(self) -> bool:
        """No request may be pulled, nor more bytes read, before a reply has left."""
        return len(self._slots) >= self._max_in_flight or self._in_flight_bytes >= self._max_in_flight_bytes

    @property
    def bytes_missing(self) -> int:
        """How many bytes the frame that is on its way still needs, as far as that is known."""
        return self._partial_needs - len(self._partial)

    @property
    def arriving(self) -> int:
        """Bytes in all of a frame of which a part has come, as far as that is known; 0: none has."""
        return self._partial_needs if self._partial else 0

    @property
    def arrived(self) -> int:
        """Bytes of that part."""
        return len(self._partial)

    def receive_data(self, data: bytes) -> None:
        """Take what was read from the peer. Raises ProtocolError for a negative or excessive frame size."""
        view = memoryview(data)
        position = 0
        end = len(data)
        while self._partial and position < end:
            position = self._feed_partial(view, position)
        while end - position >= 4:
            size = self._frame_size(_SIZE.unpack_from(view, position)[0])
            if end - position - 4 < size:
                self._partial_needs = 4 + size
                break
            self._frames.append(view[position + 4 : position + 4 + size])
            position += 4 + size
        if position < end:
            self._partial += view[position:]

    def next_request(self) -> Request | None:
        """The next whole request, with its slot taken; None when more bytes, or replies, are needed first."""
        if not self._frames or self.at_limit:
            return None
        frame = self._frames.popleft()
        try:
            return self._parse(frame)
        except DECODE_ERRORS as error:
            raise ProtocolError(f"a request header is cut short: {error}") from error

    def data_to_send(self) -> list[Buffer]:
        """The replies that are ready and in turn, as pieces; they count as sent."""
        buffers: list[Buffer] = []
        slots = self._slots
        while slots and slots[0].done:
            slot = slots.popleft()
            self._in_flight_bytes -= slot.request_bytes
            buffers.extend(slot.buffers)
        return buffers

    def close(self) -> None:
        """Let go of everything at once, which reference cycles with slots and callbacks would keep for long."""
        self._on_ready, self._on_reply = _nothing, _nothing_of
        self._slots.clear()
        self._frames.clear()
        self._partial = bytearray()

    def slot_done(self, slot: ReplySlot) -> None:
        """Called by a slot when it is completed."""
        self._on_reply(slot, sum(map(len, slot.buffers)))
        if self._slots and self._slots[0] is slot:
            self._on_ready()

    def _feed_partial(self, view: memoryview, position: int) -> int:
        """Add to the frame that began in earlier data; one copy of its bytes is made, whatever its size."""
        taken = view[position : position + self.bytes_missing]
        self._partial += taken
        if len(self._partial) < self._partial_needs:
            return position + len(taken)
        if self._partial_needs == 4:
            self._partial_needs = 4 + self._frame_size(_SIZE.unpack_from(self._partial)[0])
        if len(self._partial) == self._partial_needs:
            self._frames.append(memoryview(self._partial)[4:])
            self._partial = bytearray()
            self._partial_needs = 4
        return position + len(taken)

    def _frame_size(self, size: int) -> int:
        if not 0 <= size <= self._max_request_bytes:
            raise ProtocolError(f"a request of {size} bytes, allowed are 0 to {self._max_request_bytes}")
        return size

    def _parse(self, frame: memoryview) -> Request:
        api_key, version, correlation_id = _HEADER.unpack_from(frame)
        flexible = self._flexible(api_key, version)
        client_id: str | None = None
        position = _HEADER.size
        if (api_key, version) != (_CONTROLLED_SHUTDOWN, 0):
            length = _HEADER_WITH_CLIENT.unpack_from(frame)[3]
            position = _HEADER_WITH_CLIENT.size
            if length >= 0:
                if position + length > len(frame):
                    raise ProtocolError("a client id runs past the end of its request")
                client_id = str(frame[position : position + length], "utf-8", "replace")
                position += length
        if flexible:
            position = skip_tags(frame, position)
        slot = ReplySlot(self, api_key, correlation_id, flexible and api_key != _API_VERSIONS, len(frame))
        self._slots.append(slot)
        self._in_flight_bytes += slot.request_bytes
        return Request(api_key, version, correlation_id, client_id, frame[position:], slot)
