"""Rewritten logs in an audited bucket: what the newest root names must be there and undamaged, and nothing else."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from kafscale.records.record import Record, build_batch
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.rewritten.object import ObjectBuilder
from kafscale.rewritten.root import Entry, Root, build_root
from kafscale.v1.metadata_pb2 import EpochHistory
from kafscale_spark.audit.bucket import Listed
from kafscale_spark.audit.chain import Bounds, check_chain
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.objects import Checked
from kafscale_spark.audit.rewritten import RewrittenPart, check_rewritten, check_rewritten_part, missing_objects

ID = bytes(range(16))
BOUNDS = Bounds(0, end_before=40, end_after=40, topic_id=ID)


class _Objects(dict[str, bytes]):
    """A bucket in memory with the rewritten objects of ``orders-0``."""

    def list(self, prefix: str) -> Iterator[Listed]:
        return (Listed(key, len(data)) for key, data in self.items() if key.startswith(prefix))

    def add(self, *bounds: int, number: int, topic_id: bytes = ID, epoch: int = 3) -> RootKey:
        """Store objects with one record between each of the bounds, none from 10 to 20, and a root that names them."""
        entries = []
        for start, end in pairwise(bounds):
            builder = ObjectBuilder(start, epoch=epoch, attempt=number, created_ms=7)
            if (start, end) != (10, 20):
                builder.add(build_batch([Record(start + 1, 5, b"k", b"v")], base_offset=start + 1, leader_epoch=2))
            built = builder.finish(end)
            if built is not None:
                key = RewrittenKey.of(built.entry, "ns", "orders", 0)
                self[str(key)], self[str(key.index)] = built.data, built.index
            entries.append(Entry(start, end, built.entry if built is not None else None))
        root = Root(topic_id, number, entries, [EpochHistory.Entry(epoch=2, first_offset=0)])
        root_key = RootKey("ns", "orders", 0, number, epoch, number)
        self[str(root_key)] = build_root(root)
        return root_key

    def key(self, base: int, number: int) -> str:
        """Return the key of the object at ``base`` of a root."""
        found = [key for key in self if f"/{base:020d}-" in key and key.endswith(f"-{number}.kfs")]
        return found[0]


def _part(objects: _Objects, bounds: Bounds = BOUNDS, *, listed: Sequence[str] = ()) -> RewrittenPart:
    keys = [key for key in listed or objects if not key.endswith(".index")]
    rows = [check_rewritten(objects, key) for key in keys]
    return check_rewritten_part(rows, bounds, lambda root, names: missing_objects(objects, root, names))


def _found(part: RewrittenPart) -> list[tuple[Kind, int]]:
    return [(finding.kind, finding.offset) for finding in part.findings]


def _damage(objects: _Objects, key: str) -> None:
    objects[key] = objects[key][:40] + b"?" + objects[key][41:]


def test_a_whole_root_has_no_findings_and_segments_follow_it() -> None:
    objects = _Objects()
    objects.add(0, 10, 20, 30, number=1)
    part = _part(objects)
    assert (part.findings, part.through, part.objects, part.records) == ([], 30, 2, 2)
    segment = Checked("s", "orders", 0, 30, 40, 2)
    assert check_chain("orders", 0, [segment], part.bounds(BOUNDS)) == []
    assert [one.kind for one in check_chain("orders", 0, [], part.bounds(BOUNDS))] == [Kind.END_DISAGREES]
    later = replace(segment, base_offset=31)
    missing = check_chain("orders", 0, [later], part.bounds(replace(BOUNDS, start_known=False)))
    assert [(one.kind, one.offset) for one in missing] == [(Kind.SEGMENTS_MISSING, 30)]


def test_damage_of_what_the_newest_root_names_is_reported() -> None:
    objects = _Objects()
    objects.add(0, 10, 20, 30, number=1)
    _damage(objects, objects.key(20, 1))
    assert _found(_part(objects)) == [(Kind.REWRITTEN_DAMAGED, 20)]
    del objects[objects.key(20, 1)]
    assert _found(_part(objects)) == [(Kind.REWRITTEN_MISSING, 20)]


@pytest.mark.parametrize(
    ("damaged", "kind"), [(b"", Kind.INDEX_DAMAGED), (None, Kind.INDEX_MISSING), (b"other", Kind.INDEX_WRONG)]
)
def test_indexes_are_checked(damaged: bytes | None, kind: Kind) -> None:
    objects = _Objects()
    objects.add(0, 10, number=1)
    objects.add(0, 12, number=2)
    index = objects.key(0, 2).removesuffix("kfs") + "index"
    if damaged is None:
        del objects[index]
    else:
        objects[index] = objects[objects.key(0, 1).removesuffix("kfs") + "index"] if damaged else b""
    assert _found(_part(objects)) == [(kind, 0)]


def test_an_object_that_is_not_the_one_of_the_root_is_damage() -> None:
    objects = _Objects()
    root = objects.add(0, 10, number=1)
    builder = ObjectBuilder(0, epoch=3, attempt=1, created_ms=7)
    builder.add(build_batch([Record(1, 5, b"k", b"another")], base_offset=1, leader_epoch=2))
    built = builder.finish(10)
    assert built is not None
    objects[objects.key(0, 1)] = built.data
    objects[objects.key(0, 1).removesuffix("kfs") + "index"] = built.index
    part = _part(objects)
    assert _found(part) == [(Kind.REWRITTEN_DAMAGED, 0)]
    assert str(root) in part.findings[0].detail


def test_what_was_replaced_or_never_committed_is_not_damage() -> None:
    objects = _Objects()
    old = objects.add(0, 10, 20, number=1)
    objects.add(0, 30, number=2)
    _damage(objects, objects.key(0, 1))
    assert _found(_part(objects)) == [(Kind.ORPHAN, -1)]
    del objects[objects.key(0, 1)]
    assert _found(_part(objects)) == []
    _damage(objects, str(old))
    assert _found(_part(objects)) == [(Kind.ORPHAN, -1)]
    # An attempt whose owner died before it stored a root.
    del objects[str(objects.add(30, 40, number=5))], objects[str(old)]
    assert _found(_part(objects)) == [(Kind.ORPHAN, -1)]
    other = objects.add(0, 90, number=9, topic_id=b"x" * 16)
    part = _part(objects)
    assert (part.through, {finding.kind for finding in part.findings}) == (30, {Kind.ORPHAN})
    assert str(other) in [finding.key for finding in part.findings]


def test_a_damaged_newest_root_is_damage() -> None:
    objects = _Objects()
    objects.add(0, 10, number=1)
    _damage(objects, str(objects.add(0, 20, number=2)))
    part = _part(objects)
    assert (Kind.ROOT_DAMAGED, -1) in _found(part)
    assert part.through == 10


def test_objects_below_the_log_start_need_not_be_there() -> None:
    objects = _Objects()
    objects.add(0, 5, 10, 20, 30, number=1)
    del objects[objects.key(0, 1)]
    assert _found(_part(objects)) == [(Kind.REWRITTEN_MISSING, 0)]
    assert _found(_part(objects, replace(BOUNDS, log_start=5))) == []
    assert _found(_part(objects, replace(BOUNDS, start_known=False))) == []


def test_a_bucket_that_changes_during_the_audit_has_no_damage() -> None:
    objects = _Objects()
    objects.add(0, 10, number=1)
    root = objects.add(0, 30, number=2)
    before_object = [key for key in objects if key != objects.key(0, 2)]
    assert _found(_part(objects, listed=before_object)) == [], "the root was listed after the object was stored"
    listed = [*objects]
    for key in [str(root), objects.key(0, 2)]:
        del objects[key]
    assert _found(_part(objects, listed=listed)) == []
    newer = RewrittenPart([], 60, True, 1, 1).bounds(BOUNDS)
    assert check_chain("orders", 0, [], newer) == [], "the root is newer than the bounds"


def test_damaged_segments_in_the_place_of_rewritten_objects_are_leftovers() -> None:
    kinds = (Kind.SEGMENT_DAMAGED, Kind.INDEX_MISSING)
    damaged = Checked("s", "orders", 0, 0, findings=[Finding(kind, "orders", 0, 0, "s", "checksum") for kind in kinds])
    (left,) = RewrittenPart([], 30).leftovers([damaged])
    assert (left.kind, left.detail) == (
        Kind.ORPHAN,
        "the log has rewritten objects up to offset 30, and this segment is damaged: checksum",
    )
