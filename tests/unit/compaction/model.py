"""Kafka's compaction in few lines: batches of records as plain values, without bytes, hashes or varints."""

from dataclasses import dataclass, replace

COMMIT, ABORT = 1, 0


@dataclass(frozen=True)
class R:
    """A record. ``value`` None is a tombstone."""

    offset: int
    key: bytes | None
    value: bytes | None
    time: int


@dataclass(frozen=True)
class B:
    """A batch of offsets ``base`` to ``last``. ``marker``: COMMIT or ABORT if it is a control batch; of an empty one,
    COMMIT."""

    base: int
    last: int
    records: tuple[R, ...]
    producer: int = -1
    transactional: bool = False
    marker: int | None = None
    horizon: int | None = None


def compact(log: list[B], *, dirty: int, now: int | None, horizon: int, last: dict[int, int | None]) -> list[B]:
    """Return the log after a pass. ``last``: the last data offset of active producers, None after a marker."""
    latest = {
        record.key: record.offset
        for place, batch in enumerate(log)
        if batch.base >= dirty and batch.marker is None and not _is_aborted(log, place)
        for record in batch.records
        if record.key is not None
    }
    out = []
    for place, batch in enumerate(log):
        past = batch.horizon is not None and now is not None and batch.horizon <= now
        stays = batch.records
        if batch.marker is not None:
            needless = not _has_data(log, place)
            marks = needless and batch.horizon is None and bool(stays)
            stays = () if needless and past else stays
        else:
            stays = tuple(
                record
                for record in batch.records
                if not _is_aborted(log, place)
                and record.key is not None
                and record.offset >= latest.get(record.key, -1)
                and not (record.value is None and past)
            )
            marks = batch.horizon is None and any(record.value is None for record in stays)
        if stays:
            out.append(replace(batch, records=stays, horizon=horizon if marks else batch.horizon))
        elif batch.producer in last and last[batch.producer] == (None if batch.marker is not None else batch.last):
            marker = None if batch.marker is None else COMMIT
            out.append(replace(batch, records=(), horizon=None, marker=marker))
    return out


def _is_aborted(log: list[B], place: int) -> bool:
    one = log[place]
    return one.transactional and next(
        (later.marker == ABORT for later in log[place:] if later.marker is not None and later.producer == one.producer),
        False,
    )


def _has_data(log: list[B], place: int) -> bool:
    """Return whether the transaction that the marker ends has batches in the log."""
    for batch in reversed(log[:place]):
        if batch.producer == log[place].producer and batch.marker is not None:
            return False
        if batch.producer == log[place].producer and batch.transactional:
            return True
    return False
