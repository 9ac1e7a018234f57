"""Intakes: damaged, missing and leftover objects, changes while the bucket is in use, and records behind segments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from kafscale import paths
from kafscale.intake.format import Entry, encode, encode_seal
from kafscale_spark.audit.bucket import Listed
from kafscale_spark.audit.chain import Bounds
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.intakes import (
    CheckedIntake,
    EntryRange,
    Placed,
    check_intake,
    check_intakes,
    check_tails,
    is_lost,
)
from tests.support.samples.intake import CLICKS, ORDERS, entries
from tests.support.samples.segments import EPOCH

NS, RUN = "default", "run-1"


@dataclass
class _Bucket:
    objects: dict[str, bytes] = field(default_factory=dict)

    def list(self, prefix: str) -> Iterator[Listed]:
        yield from (Listed(key, len(data)) for key, data in self.objects.items() if key.startswith(prefix))

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def put(self, *numbers: int, checkpoint: int = 1, of: Sequence[Entry] = ()) -> None:
        for number in numbers:
            self.objects[_key(number)] = b"".join(
                encode(NS, RUN, number=number, checkpoint=checkpoint, created_ms=0, entries=of or entries())
            )

    def seal(self, number: int) -> None:
        self.objects[_key(number)] = encode_seal(NS, RUN, number=number, created_ms=0)


def _key(number: int | None) -> str:
    return str(paths.IntakeKey(NS, RUN, number))


def _checked(bucket: _Bucket) -> list[CheckedIntake]:
    return [check_intake(bucket, listed.key) for listed in bucket.list(paths.intakes_prefix(NS))]


def _check(bucket: _Bucket, rows: list[CheckedIntake] | None = None) -> tuple[list[Finding], list[Placed]]:
    return check_intakes(_checked(bucket) if rows is None else rows, partial(is_lost, bucket, NS))


def _found(bucket: _Bucket, rows: list[CheckedIntake] | None = None) -> list[tuple[Kind, str]]:
    return [(finding.kind, finding.key) for finding in _check(bucket, rows)[0]]


def test_a_whole_intake_has_no_findings() -> None:
    bucket = _Bucket()
    bucket.put(3)
    bucket.put(4, 5, checkpoint=4)
    bucket.seal(6)
    bucket.seal(70)
    findings, found = _check(bucket)
    assert findings == []
    assert [(placed.key, placed.entry.topic) for placed in found] == [
        (_key(number), ref.topic) for number in (4, 5) for ref in (ORDERS, CLICKS)
    ], "what is below the checkpoint is not needed"
    assert found[0].entry == EntryRange("orders", ORDERS.topic_id, 2, EPOCH, 1000, 1001)


def test_objects_that_the_run_has_not_finished_are_no_damage() -> None:
    bucket = _Bucket()
    bucket.put(1, 3, 4, 5)
    findings, found = _check(bucket)
    assert findings == []
    assert {placed.key for placed in found} == {_key(1)}, "the others do not count"


def test_a_lost_object_is_found() -> None:
    bucket = _Bucket()
    bucket.put(1, 3, 6)
    assert _found(bucket) == [(Kind.INTAKE_MISSING, _key(6))]


@pytest.mark.parametrize("change", ["stored", "deleted"])
def test_an_object_that_was_not_listed_may_have_been_stored_or_deleted_since(change: str) -> None:
    bucket = _Bucket()
    bucket.put(1, 3, 6)
    rows = _checked(bucket)
    if change == "stored":
        bucket.put(2)
    else:
        bucket.put(7, checkpoint=3)
    assert _found(bucket, rows) == []


def test_objects_that_were_deleted_after_the_listing_are_not_missed() -> None:
    bucket = _Bucket()
    bucket.put(1, 2, 3, 9)
    rows = _checked(bucket)
    gone = [replace(row, gone=True, checkpoint=0, entries=[]) if row.number < 3 else row for row in rows]
    bucket.put(10, checkpoint=9)
    assert _found(bucket, gone) == []


def _flip(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def test_damaged_objects_are_found() -> None:
    whole, moved, renamed = _Bucket(), _Bucket(), _Bucket()
    whole.put(1)
    for position in (8, 60, -20, -3):
        assert _found(_Bucket({_key(1): _flip(whole.objects[_key(1)], position)})) == [(Kind.INTAKE_DAMAGED, _key(1))]
    assert _found(_Bucket({_key(1): whole.objects[_key(1)][:-1]})) == [(Kind.INTAKE_DAMAGED, _key(1))]
    moved.objects[_key(2)] = whole.objects[_key(1)]
    assert _found(moved) == [(Kind.INTAKE_DAMAGED, _key(2))]
    other = paths.intake_key(NS, "run-2", 1)
    renamed.objects[other] = whole.objects[_key(1)]
    assert _found(renamed) == [(Kind.INTAKE_DAMAGED, other)]


def test_batches_that_were_damaged_before_they_were_put_are_found() -> None:
    first, second = entries()
    batch = b"".join(first.batches)
    for wrong in (
        replace(first, batches=[_flip(batch, len(batch) - 1)]),
        replace(first, epoch=EPOCH + 1),
        replace(first, base_offset=999),
        replace(first, next_offset=1002),
    ):
        bucket = _Bucket()
        bucket.put(1, of=[second, wrong])
        ((finding,), _) = _check(bucket)
        assert (finding.kind, "orders-2 at offset" in finding.detail) == (Kind.INTAKE_DAMAGED, True)


def test_objects_of_removed_intakes_and_above_seals_are_left_over() -> None:
    sealed, removed = _Bucket(), _Bucket()
    sealed.put(1, 3)
    sealed.seal(2)
    assert _found(sealed) == [(Kind.ORPHAN, _key(3))]
    removed.put(1, 9)
    removed.seal(2)
    removed.objects[_key(None)] = b"1700000000000"
    assert _found(removed) == [(Kind.ORPHAN, _key(1)), (Kind.ORPHAN, _key(9))]
    removed.objects[_key(None)] = b"yesterday"
    assert (Kind.INTAKE_DAMAGED, _key(None)) in _found(removed)


def _entry(base: int, end: int, topic_id: bytes = b"1") -> Placed:
    return Placed(f"object {base}", EntryRange("orders", topic_id, 0, 1, base, end))


@pytest.mark.parametrize(
    ("placed", "missing"),
    [
        ([], []),
        ([_entry(5, 12), _entry(12, 15), _entry(5, 12)], []),
        ([_entry(12, 15)], [10]),
        ([_entry(10, 11), _entry(13, 14), _entry(14, 15)], [11]),
        # In segments by now.
        ([_entry(3, 4), _entry(8, 9)], []),
        # Of a deleted topic with the same name.
        ([_entry(12, 15, b"2")], []),
    ],
)
def test_records_in_intakes_must_continue_the_log(placed: list[Placed], missing: list[int]) -> None:
    logs = {("orders", 0): Bounds(0, end_before=9, end_after=10, topic_id=b"1")}
    found = check_tails(placed, logs)
    assert [(finding.kind, finding.offset) for finding in found] == [(Kind.RECORDS_MISSING, at) for at in missing]
    assert check_tails(placed, {}) == []
    assert check_tails(placed, {("orders", 0): Bounds(0, topic_id=b"1")}) == [], "without ends nothing is known"
