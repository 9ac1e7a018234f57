"""``python -m services.indexer.rewriting.child``: rewrites what the indexer that started it asks for, and ends.

It talks with the indexer over standard input and output (`services.indexer.rewriting.frames`), and reads and stores
nothing itself. The indexer starts it with a lower priority, and it is killed first if memory is short.
"""

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

from google.protobuf.message import Message

from kafscale.errors import KafscaleError
from kafscale.records.checksum import Buffer
from kafscale.v1.indexer_pb2 import RewriteEvent, RewriteRequest
from services.indexer.errors import status_of
from services.indexer.rewriting.frames import BEGIN, HEADER_SIZE, Kind, frame_header, parse_frame_header
from services.indexer.rewriting.passes import Pass, Read, Store, Wanted, rewriting

_EXIT_ABANDONED = 3
"""The indexer closed standard input or output, or died."""


def _main() -> int:
    # The signals of a terminal reach all its processes. The indexer decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    exchange = _Exchange(sys.stdin.buffer, sys.stdout.buffer)
    created_ms, secret = BEGIN.unpack(exchange.receive(Kind.BEGIN))
    request = RewriteRequest.FromString(exchange.receive(Kind.REQUEST))
    _serve(exchange, rewriting(request, secret=secret, created_ms=created_ms))
    return 0


def _end_with_parent() -> NoReturn:
    poll = select.poll()
    # Only the end of standard input is reported, not its data.
    poll.register(sys.stdin.fileno(), 0)
    poll.poll()
    os._exit(_EXIT_ABANDONED)


class _Exchange:
    """The frames to and from the indexer."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    def receive(self, expected: Kind) -> bytes:
        kind, size = parse_frame_header(self._read(HEADER_SIZE))
        if kind != expected:
            raise RuntimeError(f"a frame of kind {kind.name} instead of {expected.name}")
        return self._read(size)

    def send(self, kind: Kind, content: Buffer | Message = b"") -> None:
        data = content.SerializeToString() if isinstance(content, Message) else content
        try:
            self._outgoing.write(frame_header(kind, len(data)))
            self._outgoing.write(data)
            self._outgoing.flush()
        except BrokenPipeError:
            # The usual exit would write what is buffered, and fail again.
            os._exit(_EXIT_ABANDONED)

    def _read(self, size: int) -> bytes:
        data = self._incoming.read(size)
        if len(data) < size:
            sys.exit(_EXIT_ABANDONED)
        return data


def _serve(exchange: _Exchange, work: Pass) -> None:
    answer: bytes | None = None
    while True:
        try:
            wanted = work.send(answer)
        except StopIteration:
            exchange.send(Kind.END)
            return
        except KafscaleError as error:
            exchange.send(Kind.FAILED, RewriteEvent(status=status_of(error), detail=str(error)))
            return
        answer = _asked(exchange, wanted)


def _asked(exchange: _Exchange, wanted: Wanted) -> bytes | None:
    if isinstance(wanted, Read):
        exchange.send(Kind.READ, wanted.input)
    elif isinstance(wanted, Store):
        exchange.send(Kind.ENTRY, wanted.entry)
        exchange.send(Kind.INDEX, wanted.index)
        exchange.send(Kind.OBJECT, wanted.data)
    else:
        exchange.send(Kind.STEP, wanted.step)
        return None
    return exchange.receive(Kind.OBJECT)


if __name__ == "__main__":
    sys.exit(_main())
