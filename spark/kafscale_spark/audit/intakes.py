"""Checks the objects of intakes, each intake as a whole, and that its records continue the logs."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.intake.format import Entry, IntakeHeader, parse
from kafscale.intake.format import Kind as ObjectKind
from kafscale.intake.listing import Listing
from kafscale.intake.verify import verify_batches
from kafscale_spark.audit.bucket import Bucket
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.metadata import Logs

MARK = 0
"""The number of the mark that an intake was removed."""
Lost = Callable[[str, int], bool]


@dataclass(frozen=True, slots=True)
class EntryRange:
    """An entry of an intake object: the epoch and the offsets of its batches."""

    topic: str
    topic_id: bytes
    partition: int
    epoch: int
    base_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class CheckedIntake:
    """The result of checking one object of an intake. ``number`` is `MARK` for the mark of removal.

    ``size`` in bytes. ``checkpoint`` is 0 if damage hides it. ``gone`` means that it was deleted after the listing.
    """

    key: str
    run_id: str
    number: int
    size: int = 0
    checkpoint: int = 0
    seal: bool = False
    gone: bool = False
    entries: list[EntryRange] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class Placed(NamedTuple):
    """An entry and the key of its object."""

    key: str
    entry: EntryRange


def check_intake(bucket: Bucket, key: str) -> CheckedIntake:
    """Read and check an object of an intake. Raises ValueError for another key."""
    name = paths.parse_intake_key(key)
    if name is None:
        raise ValueError(f"{key} is not the key of an intake object")
    checked = CheckedIntake(key, name.run_id, name.number or MARK)
    data = bucket.get(key)
    if data is None:
        return replace(checked, gone=True)
    checked = replace(checked, size=len(data))
    if name.number is None:
        return checked if data.isdigit() else _damaged(checked, f"it is not a time: {data[:20]!r}")
    try:
        found = parse(data)
    except CorruptData as error:
        return _damaged(checked, str(error))
    header = found.header
    if (header.number, found.run_id) != (name.number, name.run_id):
        return _damaged(checked, f"it is object {header.number} of run {found.run_id}")
    faults = [Finding(Kind.INTAKE_DAMAGED, "", -1, -1, key, fault) for fault in verify_batches(found)]
    seal = header.kind is ObjectKind.SEAL
    entries = [_range(entry) for entry in found.entries]
    return replace(checked, checkpoint=header.checkpoint, seal=seal, entries=entries, findings=faults)


def check_intakes(rows: Iterable[CheckedIntake], lost: Lost) -> tuple[list[Finding], list[Placed]]:
    """Check each intake as a whole, from all its objects. Return findings, and the entries that count.

    ``lost`` reads the bucket again: whether an object of a run that was not listed is lost.
    """
    findings: list[Finding] = []
    entries: list[Placed] = []
    for run_id, of_run in groupby(sorted(rows, key=lambda row: (row.run_id, row.number)), lambda row: row.run_id):
        objects = list(of_run)
        findings += [finding for row in objects for finding in row.findings]
        by_number = {row.number: row for row in objects if row.number != MARK}
        listing = _listing(objects)
        span = listing.span
        if listing.removed:
            findings += _left_over(by_number.values(), 1, "the intake was removed")
            continue
        if listing.sealed:
            findings += _left_over(by_number.values(), span.end, f"the intake is sealed at {span.end}")
        elif listing.has_gap and lost(run_id, span.end):
            detail = f"object {span.end} of the intake of run {run_id} is missing, but later ones are there"
            key = by_number[max(listing.records)].key
            findings.append(Finding(Kind.INTAKE_MISSING, "", -1, -1, key, detail))
        for number in range(span.start, span.end):
            entries += (Placed(by_number[number].key, entry) for entry in by_number[number].entries)
    return findings, entries


def check_tails(entries: Iterable[Placed], logs: Logs) -> list[Finding]:
    """Return findings of offsets above the segments of a log that no entry has, although one has later offsets.

    The ends of ``logs`` must have been read after the objects.
    """
    findings: list[Finding] = []
    expected = {name: bounds.end_after for name, bounds in logs.items() if bounds.end_after is not None}
    for key, entry in sorted(entries, key=lambda placed: placed.entry.base_offset):
        name = entry.topic, entry.partition
        if name not in expected or logs[name].topic_id != entry.topic_id:
            continue
        if entry.base_offset > expected[name]:
            detail = f"neither a segment nor an intake has offsets {expected[name]} to {entry.base_offset - 1}"
            findings.append(Finding(Kind.RECORDS_MISSING, *name, expected[name], key, detail))
        expected[name] = max(expected[name], entry.next_offset)
    return findings


def is_lost(bucket: Bucket, namespace: str, run_id: str, number: int) -> bool:
    """Return whether an object is missing although the run did not delete it. Raises Unavailable.

    It may have been stored since the listing, or deleted below a newer checkpoint.
    """
    if bucket.get(paths.intake_key(namespace, run_id, number)) is not None:
        return False
    listed = {
        key.number: each.key
        for each in bucket.list(paths.intake_prefix(namespace, run_id))
        if (key := paths.parse_intake_key(each.key)) is not None and key.number is not None
    }
    for newest in sorted(listed, reverse=True):
        data = bucket.get(listed[newest])
        with suppress(CorruptData):
            if data is not None and (header := IntakeHeader.parse(data)).kind is ObjectKind.RECORDS:
                return header.checkpoint <= number
    return True


def _listing(objects: Sequence[CheckedIntake]) -> Listing:
    records = {row.number: row for row in objects if row.number != MARK and not row.seal}
    checkpoint = next((row.checkpoint for row in reversed(records.values()) if row.checkpoint), 1)
    return Listing(
        {number: row.size for number, row in records.items()},
        {row.number for row in objects if row.seal},
        checkpoint,
        any(row.number == MARK for row in objects),
    )


def _left_over(rows: Iterable[CheckedIntake], start: int, detail: str) -> list[Finding]:
    return [
        Finding(Kind.ORPHAN, "", -1, -1, row.key, detail)
        for row in rows
        if row.number >= start and not row.seal and not row.gone
    ]


def _damaged(checked: CheckedIntake, detail: str) -> CheckedIntake:
    return replace(checked, findings=[Finding(Kind.INTAKE_DAMAGED, "", -1, -1, checked.key, detail)])


def _range(entry: Entry) -> EntryRange:
    ref = entry.partition
    return EntryRange(ref.topic, ref.topic_id, ref.partition, entry.epoch, entry.base_offset, entry.next_offset)
