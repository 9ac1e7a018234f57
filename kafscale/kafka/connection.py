"""One Kafka connection without IO: bytes in, requests out; replies in, bytes out in the order of the requests.

A frame has at most ``max_request_bytes``, which is checked before its body is buffered. Every request takes a slot in a
queue when it is pulled, and replies leave only from the head of the queue, so requests may be processed concurrently
and complete in any order. A request without a reply (acks=0) keeps its slot but sends nothing. A request is pulled only
while the queue has fewer than ``max_in_flight`` requests and less than ``max_in_flight_bytes``.

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
    """The ``on_ready`` callback after `close`."""


def _nothing_of(_: "ReplySlot", __: int) -> None:
    """The ``on_reply`` callback after `close`."""


class ProtocolError(CorruptData):
    """The client violated the framing or a header. No reply is possible and the connection must be closed."""


class ReplySlot:
    """The slot of a request in the order of replies. It is completed once, or abandoned with its connection.

    ``received_at`` is set and used only by the shell.
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
        """Reply with the pieces of a response body, without copying them."""
        size = sum(map(len, body))
        if self._tagged_header:
            header = _REPLY_WITH_TAGS.pack(size + 5, self._correlation_id, 0)
        else:
            header = _REPLY.pack(size + 4, self._correlation_id)
        self._complete((header, *body), len(header) + size)

    def skip(self) -> None:
        """Complete the request without a reply (acks=0), so that replies behind it may be sent."""
        self._complete((), 0)

    def _complete(self, buffers: Sequence[Buffer], size: int) -> None:
        if self.done:
            raise RuntimeError("this request has already been answered")
        self.buffers = buffers
        self.done = True
        self._connection.slot_done(self, size)


@dataclass(frozen=True, slots=True)
class Request:
    """A request: its header, its undecoded body and the slot for its reply."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    slot: ReplySlot


class KafkaConnection:
    """One connection. ``flexible(api_key, version)`` returns whether the version and its headers have tagged fields.

    ``on_reply`` is called with the slot and the size of every reply as it is made, ``on_ready`` when there is new data
    to send or new room for a request.
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
        self.max_request_bytes = max_request_bytes
        self._max_in_flight = max_in_flight
        self._max_in_flight_bytes = max_in_flight_bytes
        self._in_flight_bytes = 0
        self._frames: deque[memoryview] = deque()
        self._partial = bytearray()
        self._partial_needs = 4
        self._slots: deque[ReplySlot] = deque()

    @property
    def in_flight(self) -> int:
        """The number of requests that were pulled and whose replies were not sent yet."""
        return len(self._slots)

    @property
    def at_limit(self) -> bool:
        """Whether no request may be pulled, and no more bytes read, until a reply has been sent."""
        return len(self._slots) >= self._max_in_flight or self._in_flight_bytes >= self._max_in_flight_bytes

    @property
    def bytes_missing(self) -> int:
        """The number of bytes that the incomplete frame still needs, as far as known."""
        return self._partial_needs - len(self._partial)

    @property
    def arriving(self) -> int:
        """The total bytes of the incomplete frame, as far as known. 0 if there is none."""
        return self._partial_needs if self._partial else 0

    @property
    def arrived(self) -> int:
        """The number of bytes of the incomplete frame that have arrived."""
        return len(self._partial)

    def receive_data(self, data: bytes) -> None:
        """Process bytes read from the peer. Raises ProtocolError for a negative or excessive frame size."""
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
        """Return the next complete request with its slot, or None if more bytes or replies are needed first."""
        if not self._frames or self.at_limit:
            return None
        frame = self._frames.popleft()
        try:
            api_key, version, correlation_id = _HEADER.unpack_from(frame)
            flexible = self._flexible(api_key, version)
            client_id: str | None = None
            position = _HEADER.size
            if (api_key, version) != (_CONTROLLED_SHUTDOWN, 0):
                length = _HEADER_WITH_CLIENT.unpack_from(frame)[3]
                position = _HEADER_WITH_CLIENT.size
                if length >= 0:
                    if position + length > len(frame):
                        raise ProtocolError("a client id extends past the end of its request")
                    client_id = str(frame[position : position + length], "utf-8", "replace")
                    position += length
            if flexible:
                position = skip_tags(frame, position)
        except DECODE_ERRORS as error:
            raise ProtocolError(f"a request header is truncated: {error}") from error
        slot = ReplySlot(self, api_key, correlation_id, flexible and api_key != _API_VERSIONS, len(frame))
        self._slots.append(slot)
        self._in_flight_bytes += slot.request_bytes
        return Request(api_key, version, correlation_id, client_id, frame[position:], slot)

    def data_to_send(self) -> list[Buffer]:
        """Return, as pieces, the replies that are ready in order. They count as sent."""
        buffers: list[Buffer] = []
        slots = self._slots
        while slots and slots[0].done:
            slot = slots.popleft()
            self._in_flight_bytes -= slot.request_bytes
            buffers.extend(slot.buffers)
        return buffers

    def close(self) -> None:
        """Release all buffers at once, because reference cycles with slots and callbacks would keep them alive."""
        self._on_ready, self._on_reply = _nothing, _nothing_of
        self._slots.clear()
        self._frames.clear()
        self._partial = bytearray()

    def slot_done(self, slot: ReplySlot, size: int) -> None:
        """Notify the connection that ``slot`` is completed with ``size`` bytes. Called by the slot."""
        self._on_reply(slot, size)
        if self._slots and self._slots[0] is slot:
            self._on_ready()

    def _feed_partial(self, view: memoryview, position: int) -> int:
        """Add to the frame that began in earlier data. Its bytes are copied once, whatever its size."""
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
        if not 0 <= size <= self.max_request_bytes:
            raise ProtocolError(f"a request of {size} bytes, outside of 0 to {self.max_request_bytes}")
        return size
