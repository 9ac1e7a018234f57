"""`kafscale produce` and `kafscale consume`, which write and read records with the Kafka protocol."""

import itertools
import signal
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import click
import trio
from kio.schema.errors import ErrorCode

from kafscale.clock import wall_clock_ms
from kafscale.config.listeners import parse_address
from kafscale.errors import ConfigError, KafscaleError, Unavailable
from kafscale.kafka_client.bootstrap import reported_listeners
from kafscale.kafka_client.client import Brokers
from kafscale.kafka_client.connection import Address, Security
from kafscale.kafka_client.producer import Producer, partition_of
from kafscale.kafka_client.reader import EARLIEST, LATEST, TopicReader
from kafscale.kafka_client.requests import NOT_ALLOWED, Refusal
from kafscale.records.codecs import Codec, codec_by_name
from kafscale.records.record import Record
from kafscale.rpc.admin import CLUSTER_STATUS
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.arguments import MAX_INT64, PARTITION, name_and_value
from kafscale_tools.cli.admin.group import reset_to
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.kafka.formats import Format, unescaped
from kafscale_tools.cli.kafka.security import secured

_READ_BYTES = 1 << 16
_CHUNKS = 16
"""The number of chunks of input that are read ahead."""
_BATCH_BYTES = 512 << 10
_MOST_RECORD_BYTES = 64 << 20
_WRONG_SASL = (ErrorCode.unsupported_sasl_mechanism, ErrorCode.illegal_sasl_state)
_ANSWER_SECONDS = 30.0
"""The time limit for one answer of a broker, within --timeout."""


def _addresses(text: str) -> list[Address]:
    """Parse a list of addresses. Raises BadParameter."""
    try:
        found = [parse_address("", each.strip()) for each in text.split(",")]
    except ConfigError:
        found = []
    if not found or not all(host and port for host, port in found):
        raise click.BadParameter(f"{text!r} is not a comma-separated list of host:port")
    return found


_bootstrap = click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT,...",
    type=_addresses,
    help="Kafka listeners of gateways. Default: the listeners that the Admin service reports.",
)


def _brokers(server: Server, bootstrap: list[Address] | None, security: Security) -> Brokers:
    """Return the brokers to connect to. Raises Failed."""
    found = bootstrap
    if found is None:
        members = server.ask(CLUSTER_STATUS, pb.ClusterStatusRequest()).members
        found = reported_listeners(members)
        if not found:
            raise Failed("no gateway reports a Kafka listener; use --bootstrap", Exit.UNAVAILABLE)
    return Brokers(found, security, seconds=min(_ANSWER_SECONDS, server.timeout))


def _run(work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work``. Raises Failed, or KeyboardInterrupt after SIGINT."""
    try:
        done = trio.run(_until_interrupted, work)
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise _as_failed(error) from None
    if not done:
        raise KeyboardInterrupt


async def _until_interrupted(work: Callable[[], Awaitable[None]]) -> bool:
    """Run ``work``. Returns False if SIGINT came before its end."""
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def do() -> None:
                await work()
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
        case Refusal(code=code) if code in NOT_ALLOWED or code is ErrorCode.sasl_authentication_failed:
            return Failed(str(error), Exit.DENIED)
        case Refusal(code=code) if code in _WRONG_SASL:
            return Failed(str(error), Exit.WRONG)
        case Unavailable():
            return Failed(str(error), Exit.UNAVAILABLE)
        case KafscaleError():
            return Failed(str(error), Exit.FAILED)
        case _:
            return error


@click.command()
@click.argument("topic")
@click.option("-p", "--partition", type=PARTITION, help="Write to this partition. Default: by key, or in turn.")
@click.option("-K", "--key-delimiter", metavar="TEXT", type=unescaped, help="The separator between key and value.")
@click.option(
    "-D", "--delimiter", metavar="TEXT", type=unescaped, default="\\n", help="The end of a record. Default: newline."
)
@click.option(
    "-H", "--header", "headers", metavar="NAME=VALUE", type=name_and_value, multiple=True, help="Add to all records."
)
@click.option("-Z", "--null", is_flag=True, help="Write empty keys and values as null.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@_bootstrap
@secured
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
    security: Security,
) -> None:
    """Write standard input to a topic, one record per line.

    Exits with status 0 when all records are stored (acks=all), each once, because the producer is idempotent. After
    another exit status, the records of each partition are stored up to some line, and its last batch may or may not be
    stored. Keys determine partitions as in librdkafka (CRC-32).
    """
    if key_delimiter == b"" or delimiter == b"":
        raise click.UsageError("a delimiter cannot be empty")
    all_headers = tuple((name, value.encode("utf-8", "surrogateescape")) for name, value in headers)

    def bytes_or_null(data: bytes) -> bytes | None:
        return None if null and not data else data

    def record(line: bytes) -> Record:
        key, found, value = line.partition(key_delimiter) if key_delimiter else (line, b"", b"")
        if not found:
            return Record(0, -1, None, bytes_or_null(line), all_headers)
        return Record(0, -1, bytes_or_null(key), bytes_or_null(value), all_headers)

    brokers = _brokers(server, bootstrap, security)
    codec = codec_by_name(compression) or Codec.NONE

    async def run() -> None:
        async with brokers, trio.open_nursery() as nursery:
            producer = Producer(brokers, topic, codec=codec, seconds=server.timeout)
            selected = _selected(topic, await producer.open(), partition)
            turn, lines = itertools.cycle(selected), _Lines(delimiter)
            sender, chunks = trio.open_memory_channel[bytes](_CHUNKS)
            nursery.start_soon(_chunks, sys.stdin.buffer, sender)
            async for chunk in chunks:
                data = bytearray(chunk)
                while len(data) < _BATCH_BYTES and chunks.statistics().current_buffer_used:
                    data += chunks.receive_nowait()
                await _send_all(producer, map(record, lines.feed(bytes(data))), selected, next(turn))
            await _send_all(producer, map(record, lines.rest()), selected, next(turn))

    _run(run)


def _selected(topic: str, partitions: list[int], partition: int | None) -> list[int]:
    """Return the requested partition, or all. Raises Refusal if it does not exist."""
    if partition is None:
        return partitions
    if partition not in partitions:
        raise Refusal(ErrorCode.unknown_topic_or_partition, f"The topic {topic} has no partition {partition}.")
    return [partition]


class _Lines:
    """Splits chunked input at the delimiters. The last record may lack one."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._partial = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the complete records. Raises Refusal if a record is too large."""
        *whole, self._partial = (self._partial + data).split(self._delimiter)
        if len(self._partial) > _MOST_RECORD_BYTES:
            raise Refusal(ErrorCode.message_too_large, f"a record of more than {_MOST_RECORD_BYTES} bytes")
        return whole

    def rest(self) -> list[bytes]:
        return [self._partial] if self._partial else []


async def _chunks(stream: BinaryIO, chunks: "trio.MemorySendChannel[bytes]") -> None:
    """Read ahead in a thread, which is abandoned when the command ends."""
    # A thread blocked in a buffered stream holds its lock, which the interpreter needs to exit.
    unbuffered = getattr(stream, "raw", stream)
    async with chunks:
        while data := await trio.to_thread.run_sync(unbuffered.read, _READ_BYTES, abandon_on_cancel=True):
            await chunks.send(data)


async def _send_all(producer: Producer, records: Iterable[Record], selected: Sequence[int], keyless: int) -> None:
    """Send records to all partitions in parallel: those without a key to ``keyless``, the others as librdkafka does."""
    places: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        place = keyless if record.key is None else partition_of(record.key, selected)
        places[place].append(record)
    batches = {place: _batches(found) for place, found in places.items()}
    while due := {place: batch for place, found in batches.items() if (batch := next(found, None))}:
        await producer.send(due)


def _batches(records: list[Record]) -> Iterator[list[Record]]:
    """Split records into batches. Sets their timestamps, and their offsets from 0 in each batch."""
    now_ms = wall_clock_ms()
    batch: list[Record] = []
    size = 0
    for record in records:
        added = len(record.key or b"") + len(record.value or b"")
        if batch and size + added > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record._replace(offset=len(batch), timestamp=now_ms))
        size += added
    if batch:
        yield batch


@click.command()
@click.argument("topic")
@click.option("-p", "--partition", type=PARTITION, help="Read only this partition.")
@click.option(
    "--from",
    "where",
    metavar="WHERE",
    type=reset_to,
    default="earliest",
    show_default=True,
    help="earliest, latest, offset=N, or time=... (ISO 8601; without a zone, UTC; or milliseconds).",
)
@click.option("--follow", is_flag=True, help="Wait for new records until SIGINT (Ctrl-C).")
@click.option("-c", "--count", type=click.IntRange(1, MAX_INT64), help="Stop after N records.")
@click.option(
    "-f",
    "--format",
    "form",
    metavar="TEXT",
    default="%s\\n",
    show_default=True,
    help="%s value, %k key, %h headers, %o offset, %p partition, %t topic, %T timestamp in milliseconds, %S and %K "
    "sizes of value and key (-1: null), %% a percent sign; \\n \\r \\t \\0 \\\\ \\xHH.",
)
@click.option("-Z", "--null", is_flag=True, help="Write NULL for keys, values and header values that are null.")
@_bootstrap
@secured
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
    security: Security,
) -> None:
    """Write a topic's records to standard output, without a group.

    Exits with status 0 at the end that each partition had at the start, after --count records, or with --follow on
    SIGINT. Records are ordered only within a partition.
    """
    if "shift_by" in where:
        raise click.UsageError("--from: shift=N needs a group")
    shape = Format.parse(form, b"NULL" if null else b"")
    brokers, out = _brokers(server, bootstrap, security), sys.stdout.buffer
    remaining = MAX_INT64 if count is None else count

    def take(place: int, records: list[Record]) -> bool:
        nonlocal remaining
        taken = records[: min(remaining, len(records))]
        out.write(b"".join(shape.of(topic, place, record) for record in taken))
        out.flush()
        remaining -= len(taken)
        return remaining > 0

    async def run() -> None:
        async with brokers:
            reader = TopicReader(brokers, topic, seconds=server.timeout, warn=lambda text: click.echo(text, err=True))
            selected = _selected(topic, await reader.open(), partition)
            ends = await reader.offsets(selected, LATEST)
            positions = await _positions(reader, topic, selected, where, ends)
            await reader.read(positions, None if follow else ends, take)

    try:
        _run(run)
    except KeyboardInterrupt:
        if not follow:
            raise


async def _positions(
    reader: TopicReader, topic: str, selected: list[int], where: dict[str, Any], ends: dict[int, int]
) -> dict[int, int]:
    """Return the offset at which each partition is read first. Raises Failed if an offset is outside a log."""
    if "latest" in where:
        return dict(ends)
    if "timestamp_ms" in where:
        # Negative timestamps have special meanings, and no record is older than 0.
        found = await reader.offsets(selected, max(0, where["timestamp_ms"]))
        return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}
    firsts = await reader.offsets(selected, EARLIEST)
    if "earliest" in where:
        return firsts
    offset = where["offset"]
    for place in selected:
        if not firsts[place] <= offset <= ends[place]:
            text = f"{topic}-{place} has no offset {offset}: its log is from {firsts[place]} to {ends[place]}."
            raise Failed(text, Exit.WRONG)
    return dict.fromkeys(selected, offset)
