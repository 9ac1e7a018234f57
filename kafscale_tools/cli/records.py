"""`kafscale produce` and `kafscale consume`: records in and out, by Kafka's protocol."""

import itertools
import signal
import sys
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import click
import trio
from kio.schema.errors import ErrorCode

from kafscale.clock import wall_clock_ms
from kafscale.config.listeners import parse_address
from kafscale.errors import ConfigError, KafscaleError, Unavailable
from kafscale.records.codecs import Codec, codec_by_name
from kafscale.records.record import Record
from kafscale.rpc.admin import CLUSTER_STATUS
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.arguments import MAX_INT64, PARTITION, name_and_value
from kafscale_tools.cli.admin.group import reset_to
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.kafka.client import Address, Brokers, Refusal
from kafscale_tools.cli.kafka.formats import Format, unescaped
from kafscale_tools.cli.kafka.producer import Producer
from kafscale_tools.cli.kafka.reader import EARLIEST, LATEST, TopicReader

_READ_BYTES = 1 << 16
_CHUNKS = 16
"""Of what is read ahead of what is stored."""
_BATCH_BYTES = 512 << 10
_MOST_RECORD_BYTES = 64 << 20
_ANSWER_SECONDS = 30.0
"""What one answer of a broker may take, within --timeout."""


def _addresses(text: str) -> list[Address]:
    """Raises BadParameter."""
    try:
        found = [parse_address("", each.strip()) for each in text.split(",")]
    except ConfigError:
        found = []
    if not found or not all(host and port for host, port in found):
        raise click.BadParameter(f"{text!r} is not host:port, or several separated by commas")
    return found


_bootstrap = click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT,...",
    type=_addresses,
    help="Kafka listeners of gateways. Default: those that a gateway's Admin service tells.",
)


def _brokers(server: Server, bootstrap: list[Address] | None) -> Brokers:
    """Raises Failed."""
    found = bootstrap
    if found is None:
        members = server.ask(CLUSTER_STATUS, pb.ClusterStatusRequest()).members
        firsts = [each.listeners[0] for each in members if each.listeners and not each.leaving]
        found = [parse_address("", listener.partition("://")[2]) for listener in firsts]
        if not found:
            raise Failed("no gateway tells of a Kafka listener; name one by --bootstrap", Exit.UNAVAILABLE)
    return Brokers(found, seconds=min(_ANSWER_SECONDS, server.timeout))


def _run(doing: Callable[[], Awaitable[None]]) -> None:
    """Raises Failed; KeyboardInterrupt, where SIGINT ended it."""
    try:
        done = trio.run(_until_interrupted, doing)
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise _as_failed(error) from None
    if not done:
        raise KeyboardInterrupt


async def _until_interrupted(doing: Callable[[], Awaitable[None]]) -> bool:
    """False: SIGINT came first."""
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def do() -> None:
                await doing()
                nursery.cancel_scope.cancel()

            nursery.start_soon(do)
            await anext(aiter(signals))
            nursery.cancel_scope.cancel()
            return False
    return True


def _as_failed(error: Exception) -> Exception:
    match error:
        case Refusal(code=ErrorCode.unknown_topic_or_partition):
            return Failed(str(error), Exit.NOT_FOUND)
        case Unavailable():
            return Failed(str(error), Exit.UNAVAILABLE)
        case KafscaleError():
            return Failed(str(error), Exit.FAILED)
        case _:
            return error


@click.command()
@click.argument("topic")
@click.option("-p", "--partition", type=PARTITION, help="Write to this one. Default: by the key, or in turn.")
@click.option("-K", "--key-delimiter", metavar="TEXT", type=unescaped, help="What stands between a key and its value.")
@click.option(
    "-D", "--delimiter", metavar="TEXT", type=unescaped, default="\\n", help="What ends a record; a line's end."
)
@click.option(
    "-H", "--header", "headers", metavar="NAME=VALUE", type=name_and_value, multiple=True, help="Of every record."
)
@click.option("-Z", "--null", is_flag=True, help="An empty key or value is none at all (null).")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@_bootstrap
@asking
def produce(
    server: Server,
    *,
    topic: str,
    partition: int | None,
    key_delimiter: bytes | None,
    delimiter: bytes,
    headers: tuple[tuple[str, str], ...],
    null: bool,
    compression: str,
    bootstrap: list[Address] | None,
) -> None:
    """Write standard input to a topic, a record for each line.

    Ends with 0 when all records are stored (acks=all), each once: the producer is idempotent. When it ends otherwise,
    the records of each partition are stored up to some line, and those of its last batch may be. Keys choose partitions
    as librdkafka's do (CRC-32).
    """
    if key_delimiter == b"" or delimiter == b"":
        raise click.UsageError("a delimiter is not empty")
    given = tuple((name, value.encode("utf-8", "surrogateescape")) for name, value in headers)

    def bytes_or_null(data: bytes) -> bytes | None:
        return None if null and not data else data

    def record(line: bytes) -> Record:
        key, found, value = line.partition(key_delimiter) if key_delimiter else (line, b"", b"")
        if not found:
            return Record(0, -1, None, bytes_or_null(line), given)
        return Record(0, -1, bytes_or_null(key), bytes_or_null(value), given)

    brokers = _brokers(server, bootstrap)
    codec = codec_by_name(compression) or Codec.NONE

    async def run() -> None:
        async with brokers, trio.open_nursery() as nursery:
            producer = Producer(brokers, topic, codec=codec, seconds=server.timeout)
            wanted = _wanted(topic, await producer.open(), partition)
            turn, lines = itertools.cycle(wanted), _Lines(delimiter)
            sender, chunks = trio.open_memory_channel[bytes](_CHUNKS)
            nursery.start_soon(_chunks, sys.stdin.buffer, sender)
            async for chunk in chunks:
                data = bytearray(chunk)
                while len(data) < _BATCH_BYTES and chunks.statistics().current_buffer_used:
                    data += chunks.receive_nowait()
                await _send_all(producer, map(record, lines.feed(bytes(data))), wanted, next(turn))
            await _send_all(producer, map(record, lines.rest()), wanted, next(turn))

    _run(run)


def _wanted(topic: str, partitions: list[int], partition: int | None) -> list[int]:
    """The one that was asked for, or all. Raises Refusal where there is none such."""
    if partition is None:
        return partitions
    if partition not in partitions:
        raise Refusal(ErrorCode.unknown_topic_or_partition, f"The topic {topic} has no partition {partition}.")
    return [partition]


class _Lines:
    """Cuts what comes in pieces at the delimiters; the last one may lack its own."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._begun = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Raises Refusal where no delimiter comes."""
        *whole, self._begun = (self._begun + data).split(self._delimiter)
        if len(self._begun) > _MOST_RECORD_BYTES:
            raise Refusal(ErrorCode.message_too_large, f"a record of more than {_MOST_RECORD_BYTES} bytes")
        return whole

    def rest(self) -> list[bytes]:
        return [self._begun] if self._begun else []


async def _chunks(stream: BinaryIO, chunks: "trio.MemorySendChannel[bytes]") -> None:
    """Read ahead, in a thread that is left behind when the command ends."""
    # A thread that waits in a buffered stream holds its lock, which the interpreter needs when it ends.
    unbuffered = getattr(stream, "raw", stream)
    async with chunks:
        while data := await trio.to_thread.run_sync(unbuffered.read, _READ_BYTES, abandon_on_cancel=True):
            await chunks.send(data)


async def _send_all(producer: Producer, records: Iterable[Record], wanted: Sequence[int], keyless: int) -> None:
    """All partitions at the same time; those without a key to ``keyless``, others as librdkafka does."""
    places: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        place = keyless if record.key is None else wanted[zlib.crc32(record.key) % len(wanted)]
        places[place].append(record)
    batches = {place: _batches(found) for place, found in places.items()}
    while due := {place: batch for place, found in batches.items() if (batch := next(found, None))}:
        await producer.send(due)


def _batches(records: list[Record]) -> Iterator[list[Record]]:
    """With a time, and offsets from 0 on in each."""
    now_ms = wall_clock_ms()
    batch: list[Record] = []
    size = 0
    for record in records:
        taken = len(record.key or b"") + len(record.value or b"")
        if batch and size + taken > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record._replace(offset=len(batch), timestamp=now_ms))
        size += taken
    if batch:
        yield batch


@click.command()
@click.argument("topic")
@click.option("-p", "--partition", type=PARTITION, help="Only this one.")
@click.option(
    "--from",
    "where",
    metavar="WHERE",
    type=reset_to,
    default="earliest",
    show_default=True,
    help="earliest, latest, offset=N, or time=... (ISO 8601, UTC without a zone; or milliseconds).",
)
@click.option("--follow", is_flag=True, help="Wait for more at the end, until SIGINT (Ctrl-C).")
@click.option("-c", "--count", type=click.IntRange(1, MAX_INT64), help="End after so many records.")
@click.option(
    "-f",
    "--format",
    "form",
    metavar="TEXT",
    default="%s\\n",
    show_default=True,
    help="%s value, %k key, %h headers, %o offset, %p partition, %t topic, %T time in milliseconds, %S and %K sizes "
    "(-1: null), %% a percent sign; \\n \\r \\t \\0 \\\\ \\xHH.",
)
@click.option("-Z", "--null", is_flag=True, help="Write NULL for a key, value or header value that is none at all.")
@_bootstrap
@asking
def consume(
    server: Server,
    *,
    topic: str,
    partition: int | None,
    where: dict[str, Any],
    follow: bool,
    count: int | None,
    form: str,
    null: bool,
    bootstrap: list[Address] | None,
) -> None:
    """Write a topic's records to standard output, without a group.

    Ends with 0 at the end that each partition had when the command began; with --follow on SIGINT, with --count as soon
    as so many are written. The records of a partition come in its order.
    """
    if "shift_by" in where:
        raise click.UsageError("--from: without a group there is nothing to shift")
    shape = Format.parse(form, b"NULL" if null else b"")
    brokers, out = _brokers(server, bootstrap), sys.stdout.buffer
    left = MAX_INT64 if count is None else count

    def take(place: int, records: list[Record]) -> bool:
        nonlocal left
        taken = records[: min(left, len(records))]
        out.write(b"".join(shape.of(topic, place, record) for record in taken))
        out.flush()
        left -= len(taken)
        return left > 0

    async def run() -> None:
        async with brokers:
            reader = TopicReader(brokers, topic, seconds=server.timeout, warn=lambda text: click.echo(text, err=True))
            wanted = _wanted(topic, await reader.open(), partition)
            ends = await reader.offsets(wanted, LATEST)
            positions = await _positions(reader, topic, wanted, where, ends)
            await reader.read(positions, None if follow else ends, take)

    try:
        _run(run)
    except KeyboardInterrupt:
        if not follow:
            raise


async def _positions(
    reader: TopicReader, topic: str, wanted: list[int], where: dict[str, Any], ends: dict[int, int]
) -> dict[int, int]:
    """Raises Failed where an offset is outside a log."""
    if "latest" in where:
        return dict(ends)
    if "timestamp_ms" in where:
        # Negative ones have meanings of their own, and no record is older.
        found = await reader.offsets(wanted, max(0, where["timestamp_ms"]))
        return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}
    firsts = await reader.offsets(wanted, EARLIEST)
    if "earliest" in where:
        return firsts
    offset = where["offset"]
    for place in wanted:
        if not firsts[place] <= offset <= ends[place]:
            text = f"{topic}-{place} has no offset {offset}: it has {firsts[place]} to {ends[place]}."
            raise Failed(text, Exit.WRONG)
    return dict.fromkeys(wanted, offset)
