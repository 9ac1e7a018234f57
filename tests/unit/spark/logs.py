"""Generates batches of a log with Hypothesis, and the rows expected from them, by `read_records`."""

import base64
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from kafscale.records.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
    peek_one,
    seal,
    walk,
    with_log_append_time,
)
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch, read_records
from kafscale_spark.decode import Decoder, Limits
from kafscale_spark.pieces import Partition, Piece, Wanted
from kafscale_spark.schema import COLUMNS
from tests.support.judge import Judge

PARTITION = Partition("orders", 7)
SOURCE = "default/orders/7/segment-00000000000000000000.kfs"
MAX_BYTES = 1 << 24
ALL = Wanted()
USUAL = Limits()
_BASE = 1_700_000_000_000

_bytes = st.none() | st.binary(max_size=40) | st.binary(max_size=3).map(lambda some: some * 200)
_headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=3).map(tuple)
_times = st.integers(_BASE - 10_000, _BASE + 10_000) | st.just(-1) | st.integers(0, 2**53)


@dataclass(frozen=True)
class Log:
    """Consecutive batches. With ``gaps``, offsets are missing between them."""

    data: bytes
    first_offset: int
    end_offset: int
    gaps: bool

    @property
    def piece(self) -> Piece:
        return Piece(self.data, SOURCE, self.first_offset, gaps=self.gaps)

    def expected(self, wanted: Wanted = ALL) -> list[dict[str, Any]]:
        """Return the expected rows, read one record at a time."""
        rows = []
        for position, header in walk(self.data):
            if header.is_control or header.record_count == 0:
                continue
            for record in read_records(self.data[position : position + header.size], max_bytes=MAX_BYTES):
                in_time = (wanted.since_ms is None or record.timestamp >= wanted.since_ms) and (
                    wanted.until_ms is None or record.timestamp < wanted.until_ms
                )
                if wanted.start <= record.offset < wanted.end and in_time:
                    rows.append(_row(record, header.is_log_append_time))
        return rows


def _row(record: Record, log_append_time: bool) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": PARTITION.topic,
        "partition": PARTITION.number,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": int(log_append_time),
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


@st.composite
def logs(draw: st.DrawFn, *, gaps: bool | None = None) -> Log:
    """Batches of any codec, including log-append time, control batches, aborted transactions and empty batches.

    The reader reads uncommitted records, as Spark's Kafka source does by default, so it returns records of aborted
    transactions, but not the markers.
    """
    with_gaps = draw(st.booleans()) if gaps is None else gaps
    offset = first = draw(st.integers(0, 2**40))
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["plain", "plain", "plain", "append time", "control", "aborted", "emptied"]))
        records = []
        last = offset
        for _ in range(draw(st.integers(1, 8))):
            records.append(Record(last, draw(_times), draw(_bytes), draw(_bytes), draw(_headers)))
            last += draw(st.integers(1, 3)) if with_gaps else 1
        codec = Codec.NONE if kind == "control" else draw(st.sampled_from(Codec))
        batch = build_batch(records, base_offset=offset, codec=codec, leader_epoch=3)
        header = peek_one(batch)
        if kind == "append time":
            batch = with_log_append_time(batch, draw(st.integers(_BASE, _BASE + 1000)))
        elif kind == "control":
            batch = sealed(header._replace(attributes=header.attributes | CONTROL_BIT), batch[61:])
        elif kind == "emptied":
            batch = sealed(header._replace(record_count=0, attributes=0, base_timestamp=-1, max_timestamp=-1), b"")
        elif kind == "aborted":
            batch = aborted(batch)
        parts.append(batch)
        following = header.next_offset + (kind == "aborted")
        offset = following + (draw(st.integers(0, 5)) if with_gaps else 0)
    return Log(b"".join(parts), first, offset, with_gaps)


def sealed(header: BatchHeader, records: bytes) -> bytes:
    """Return a batch with the right length and checksum, whatever its header and records contain."""
    out = bytearray(pack_header(header) + records)
    seal(out)
    return bytes(out)


def aborted(batch: bytes) -> bytes:
    """Return the batch as part of a transaction, and the marker by which brokers abort it."""
    header = _in_transaction(peek_one(batch))
    # Version 0, type 0, and the coordinator's epoch.
    end = build_batch([Record(header.next_offset, _BASE, bytes(4), bytes(6))], base_offset=header.next_offset)
    marker = _in_transaction(peek_one(end))._replace(base_sequence=-1, leader_epoch=header.leader_epoch)
    return sealed(header, batch[61:]) + sealed(marker._replace(attributes=marker.attributes | CONTROL_BIT), end[61:])


def _in_transaction(header: BatchHeader) -> BatchHeader:
    return header._replace(
        attributes=header.attributes | TRANSACTIONAL_BIT, producer_id=7, producer_epoch=1, base_sequence=0
    )


def append_time(header: BatchHeader) -> BatchHeader:
    return header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT)


def decoded(
    piece: Piece,
    *,
    columns: list[str] | None = None,
    wanted: Wanted = ALL,
    limits: Limits = USUAL,
) -> list[dict[str, Any]]:
    """Return all rows, with timestamps in microseconds. Validates every RecordBatch, also against the limits."""
    decoder = Decoder(PARTITION, columns or COLUMNS.names, wanted=wanted, limits=limits)
    rows: list[dict[str, Any]] = []
    for batch in [*decoder.feed(piece), *decoder.finish()]:
        batch.validate(full=True)
        assert batch.schema == decoder.schema
        assert 0 < batch.num_rows <= limits.rows
        assert batch.num_rows == 1 or batch.nbytes <= limits.arrow_bytes + 64
        names = batch.schema.names
        found = {name: batch.column(name) for name in names}
        if "timestamp" in found:
            found["timestamp"] = found["timestamp"].cast("int64")
        values = [found[name].to_pylist() for name in names]
        rows += [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    return rows


def by_kafka(judge: Judge, data: bytes) -> list[dict[str, Any]]:
    """Return the rows for what consumers of kafka-clients get."""
    rows = []
    for key, value, offset, timestamp, kind, headers in judge.records(data):
        pairs = [{"key": name, "value": _plain(content)} for name, content in headers]
        rows.append(
            {
                "key": _plain(key),
                "value": _plain(value),
                "topic": PARTITION.topic,
                "partition": PARTITION.number,
                "offset": offset,
                "timestamp": timestamp * 1000,
                "timestampType": kind,
                "headers": pairs or None,
            }
        )
    return rows


def _plain(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
