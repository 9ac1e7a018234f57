"""Compaction of a log by Kafka's rules (``Cleaner``, ``MemoryRecords.filterTo``): the last record of each key stays.

A pass has two steps. It collects the last offset of each key of the dirty part of the log. Then it rewrites the batches
from the log start up to the end of that part. Survivors keep offset, order, timestamp and headers, and their batch
keeps base offset, last offset, leader epoch, producer and sequence. A batch from which nothing was removed stays as it
is, byte for byte. Callers must verify the CRC of the batches.

A tombstone, a record without a value, stays until the delete horizon of its batch. The first pass that finds it sets
the horizon: bit 6 of the attributes says that the base timestamp is the horizon.

There are two differences from Kafka. The caller chooses the horizon. The last batch of a pass is removed if it has no
records left, because the end of a rewritten range is known without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafscale.compaction.key_map import KeyMap, KeyMapFull
from kafscale.compaction.transactions import Transactions
from kafscale.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    peek_one,
)
from kafscale.records.checksum import Buffer
from kafscale.records.codecs import compress, decompress
from kafscale.records.record import Frame, as_int64, frames, sealed
from kafscale.records.varint import append_varint

_NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class LastOfProducer:
    """The last batch of an active producer. It stays, without records if need be, so that sequences can be checked.

    ``offset`` is that of its last record; None if the last batch is a marker of ``epoch``.
    """

    offset: int | None
    epoch: int


@dataclass(slots=True)
class Counts:
    """What a pass has read and written so far. Sizes are in bytes."""

    batches_in: int = 0
    bytes_in: int = 0
    records_in: int = 0
    batches_out: int = 0
    bytes_out: int = 0
    records_out: int = 0


def collect_keys(batches: Iterable[Buffer], keys: KeyMap, transactions: Transactions, *, max_bytes: int) -> int | None:
    """Put the last offset of each key of ``batches`` into ``keys``. Control batches and aborted records do not count.

    Return the base offset of the first batch whose keys do not all fit, or None. The map may then have some of them,
    which does no harm, because these records stay in the log. ``max_bytes`` bounds the decompressed size of a batch.
    Raises CorruptBatch.
    """
    for batch in batches:
        header = peek_one(batch)
        if header.is_control or transactions.is_aborted(header):
            continue
        try:
            for found in frames(header, _data(batch, header, max_bytes)):
                if found.key is not None:
                    keys.put(found.key, header.base_offset + found.offset_delta)
        except KeyMapFull:
            return header.base_offset
    return None


class Cleaner:
    """Rewrites the batches of a log in the order of their offsets. All of them must be below the end of the pass.

    ``producers``: the last batches of active producers. ``now_ms``: tombstones and markers whose horizon is not later
    are removed; None if the time is not certain, and none is removed. ``horizon_ms`` is the horizon for those that have
    none. ``max_bytes`` bounds the decompressed size of a batch. ``counts`` has what was read and written.
    """

    def __init__(
        self,
        keys: KeyMap,
        transactions: Transactions,
        producers: Mapping[int, LastOfProducer],
        *,
        now_ms: int | None,
        horizon_ms: int,
        max_bytes: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = horizon_ms
        self._max_bytes = max_bytes
        self.counts = Counts()

    def clean(self, batch: Buffer) -> Buffer | None:
        """Return what stays of the batch: the same object if that is all of it, or None. Raises CorruptBatch."""
        header = peek_one(batch)
        counts = self.counts
        counts.batches_in += 1
        counts.bytes_in += len(batch)
        counts.records_in += header.record_count
        stays = self._marker(batch, header) if header.is_control else self._survivors(batch, header)
        if stays is None and self._is_last_of_producer(header):
            stays = _emptied(header)
        if stays is not None:
            counts.batches_out += 1
            counts.bytes_out += len(stays)
            counts.records_out += peek_one(stays).record_count
        return stays

    def _marker(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        needless = self._transactions.is_needless(header)
        if not header.record_count or (needless and self._is_past(header)):
            return None
        if not needless or header.has_horizon:
            return batch
        data = _data(batch, header, self._max_bytes)
        return _rebuilt(header, data, list(frames(header, data)), self._horizon_ms)

    def _survivors(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        if self._transactions.is_aborted(header):
            return None
        data = _data(batch, header, self._max_bytes)
        keeps_tombstones = not self._is_past(header)
        last_offset = self._keys.last_offset
        survivors = [
            found
            for found in frames(header, data)
            if found.key is not None
            and header.base_offset + found.offset_delta >= last_offset(found.key)
            and (found.has_value or keeps_tombstones)
        ]
        if not survivors:
            return None
        if not header.has_horizon and not all(found.has_value for found in survivors):
            return _rebuilt(header, data, survivors, self._horizon_ms)
        if len(survivors) == header.record_count:
            return batch
        return _rebuilt(header, data, survivors, None)

    def _is_past(self, header: BatchHeader) -> bool:
        return self._now_ms is not None and header.has_horizon and header.base_timestamp <= self._now_ms

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return not header.is_control and header.last_offset == last.offset


def _data(batch: Buffer, header: BatchHeader, max_bytes: int) -> bytes:
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE:], max_bytes) if header.record_count else b""


def _rebuilt(header: BatchHeader, data: bytes, survivors: Sequence[Frame], horizon_ms: int | None) -> bytes:
    """Return the batch with these records only, and with a horizon unless it is None."""
    attributes, base, newest = header.attributes, header.base_timestamp, header.max_timestamp
    if not header.is_log_append_time:
        newest = max(as_int64(base + found.timestamp_delta) for found in survivors)
    if horizon_ms is None:
        records = b"".join([data[found.start : found.end] for found in survivors])
    else:
        attributes |= HORIZON_BIT
        records = _from_base(data, survivors, base - horizon_ms)
        base = horizon_ms
    return sealed(
        header._replace(attributes=attributes, base_timestamp=base, max_timestamp=newest, record_count=len(survivors)),
        compress(header.codec, records),
    )


def _from_base(data: bytes, survivors: Sequence[Frame], later: int) -> bytes:
    """Return the records with timestamp deltas that are larger by ``later``."""
    out = bytearray()
    for found in survivors:
        delta = bytearray()
        append_varint(delta, as_int64(found.timestamp_delta + later))
        append_varint(out, 1 + len(delta) + found.end - found.body)
        # The attributes of records are unused.
        out += b"\x00" + delta + data[found.body : found.end]
    return bytes(out)


def _emptied(header: BatchHeader) -> bytes:
    """Return the batch without records, as Kafka's ``DefaultRecordBatch.writeEmptyHeader``."""
    kept = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return sealed(header._replace(attributes=kept, base_timestamp=_NO_TIMESTAMP, record_count=0), b"")
