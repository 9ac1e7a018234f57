"""Checks rewritten objects, their indexes and roots, and the rewritten part of a log as a whole."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from kafscale.errors import CorruptData
from kafscale.rewritten.index import parse_rewritten_index
from kafscale.rewritten.keys import RewrittenKey, RootKey, parse_rewritten_key, rewritten_prefix
from kafscale.rewritten.object import parse_object, verify_object
from kafscale.rewritten.root import Root, parse_root
from kafscale.rewritten.verify import verify_rewritten_index
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from kafscale_spark.audit.bucket import Bucket
from kafscale_spark.audit.chain import Bounds
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.objects import Checked

Lost = Callable[[RootKey, Sequence[RewrittenKey]], Sequence[RewrittenKey]]


@dataclass(frozen=True, slots=True)
class CheckedRewritten:
    """The result of checking a rewritten object with its index, or a root. ``size`` in bytes.

    ``content`` is the description of an object (`RewrittenEntry`), or the root, as bytes; empty if damage hides it.
    ``gone`` means that it was deleted after the listing.
    """

    key: str
    topic: str
    partition: int
    size: int = 0
    gone: bool = False
    content: bytes = b""
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RewrittenPart:
    """The rewritten part of a log, below ``through`` (0: there is none), with the totals of its objects.

    ``start_known``: whether segments must follow from ``through`` on.
    """

    findings: list[Finding]
    through: int = 0
    start_known: bool = False
    objects: int = 0
    records: int = 0

    def bounds(self, bounds: Bounds) -> Bounds:
        """Return the bounds of the segments of a log with these bounds."""
        # The root may be newer than the bounds.
        through = self.through if bounds.end_after is None else min(self.through, bounds.end_after)
        if through <= bounds.log_start:
            return bounds
        return replace(bounds, log_start=through, start_known=bounds.start_known or self.start_known)

    def leftovers(self, segments: Iterable[Checked]) -> list[Finding]:
        """Return the findings of damaged segments that are replaced by rewritten objects. They are no damage."""
        detail = f"the log has rewritten objects up to offset {self.through}, and this segment is damaged: "
        return [
            replace(finding, kind=Kind.ORPHAN, detail=detail + finding.detail)
            for segment in segments
            for finding in segment.findings
            if finding.kind.is_damage
        ]


def check_rewritten(bucket: Bucket, key: str) -> CheckedRewritten:
    """Read and check a rewritten object with its index, or a root. Raises ValueError for another key."""
    name = parse_rewritten_key(key)
    if name is None or (isinstance(name, RewrittenKey) and name.kind != "kfs"):
        raise ValueError(f"{key} is not the key of a rewritten object or of a root")
    checked = CheckedRewritten(key, name.topic, name.partition)
    data = bucket.get(key)
    if data is None:
        return replace(checked, gone=True)
    checked = replace(checked, size=len(data))
    return _root(checked, name, data) if isinstance(name, RootKey) else _object(bucket, checked, name, data)


def check_rewritten_part(rows: Iterable[CheckedRewritten], bounds: Bounds, lost: Lost) -> RewrittenPart:
    """Check the rewritten part of a log, which the newest root of its topic names, from all its objects and roots.

    ``lost`` reads the bucket again: which objects of a root are missing although the root is there.
    """
    objects: dict[RewrittenKey, CheckedRewritten] = {}
    roots: list[tuple[RootKey, CheckedRewritten]] = []
    for row in rows:
        key = parse_rewritten_key(row.key)
        if isinstance(key, RootKey) and not row.gone:
            roots.append((key, row))
        elif isinstance(key, RewrittenKey) and not row.gone:
            objects[key] = row
    findings: list[Finding] = []
    whole: list[tuple[RootKey, Root]] = []
    for root_key, row in sorted(roots, key=lambda each: _age(each[0]), reverse=True):
        if not row.content:
            # What an older root lists is no longer the log.
            findings += row.findings if not whole else [_orphan(row, "a damaged root that was replaced")]
            continue
        root = parse_root(row.content)
        if bounds.topic_id and root.topic_id != bounds.topic_id:
            findings.append(_orphan(row, "it belongs to a deleted topic with the same name"))
        else:
            whole.append((root_key, root))
    named = {name for root_key, root in whole for name, _ in _named(root_key, root)}
    findings += [_orphan(row, "no root names it") for name, row in objects.items() if name not in named]
    if not whole:
        return RewrittenPart(findings)
    newest, root = whole[0]
    for name in named - {name for name, _ in _named(newest, root)}:
        replaced = objects.get(name)
        for found in replaced.findings if replaced is not None else ():
            if replaced is not None and found.kind.is_damage:
                findings.append(_orphan(replaced, f"it was replaced, and is damaged: {found.detail}"))
    part = _check_root(newest, root, objects, bounds, lost)
    return replace(part, findings=[*findings, *part.findings])


def missing_objects(bucket: Bucket, root: RootKey, names: Sequence[RewrittenKey]) -> Sequence[RewrittenKey]:
    """Return which objects of a root are missing, if the root is there. Raises Unavailable.

    An object may have been stored since a listing, or deleted after its root.
    """
    listed = {found.key for found in bucket.list(rewritten_prefix(root.namespace, root.topic, root.partition))}
    return [name for name in names if str(name) not in listed] if str(root) in listed else []


def _check_root(
    key: RootKey,
    root: Root,
    objects: dict[RewrittenKey, CheckedRewritten],
    bounds: Bounds,
    lost: Lost,
) -> RewrittenPart:
    findings: list[Finding] = []
    missing: list[RewrittenKey] = []
    count = records = 0

    def found(kind: Kind, offset: int, at: str, detail: str) -> None:
        findings.append(Finding(kind, key.topic, key.partition, offset, at, detail))

    if bounds.start_known and root.start > bounds.log_start:
        found(Kind.REWRITTEN_MISSING, bounds.log_start, str(key), f"the root begins at offset {root.start}")
    for name, entry in _named(key, root):
        if entry.next_offset <= bounds.log_start:
            continue
        row = objects.get(name)
        if row is None:
            # Retention may have moved the log start, and deletes the oldest objects first.
            if count or bounds.start_known:
                missing.append(name)
            continue
        count += 1
        records += entry.records + entry.control_records
        findings += row.findings
        if row.content and RewrittenEntry.FromString(row.content) != entry:
            found(Kind.REWRITTEN_DAMAGED, name.base_offset, row.key, f"it is not the object that root {key} describes")
    for name in lost(key, missing) if missing else ():
        detail = f"the object is missing, but root {key} names it"
        found(Kind.REWRITTEN_MISSING, name.base_offset, str(name), detail)
    return RewrittenPart(findings, root.through, count > 0, count, records)


def _named(key: RootKey, root: Root) -> list[tuple[RewrittenKey, RewrittenEntry]]:
    """Return the objects that a root names, in order."""
    return [
        (RewrittenKey.of(entry.found, key.namespace, key.topic, key.partition), entry.found)
        for entry in root.entries
        if entry.found is not None
    ]


def _object(bucket: Bucket, checked: CheckedRewritten, name: RewrittenKey, data: bytes) -> CheckedRewritten:
    def finding(kind: Kind, detail: str, key: str = "") -> Finding:
        return Finding(kind, name.topic, name.partition, name.base_offset, key or checked.key, detail)

    try:
        entry = verify_object(name, data, check_batches=True)
    except CorruptData as error:
        return replace(checked, findings=[finding(Kind.REWRITTEN_DAMAGED, str(error))])
    index_key = str(name.index)
    stored = bucket.get(index_key)
    if stored is None:
        findings = [finding(Kind.INDEX_MISSING, "the object has no index", index_key)]
    else:
        try:
            faults = verify_rewritten_index(parse_rewritten_index(stored), parse_object(entry, data))
            findings = [finding(Kind.INDEX_WRONG, fault, index_key) for fault in faults]
        except CorruptData as error:
            findings = [finding(Kind.INDEX_DAMAGED, str(error), index_key)]
    return replace(checked, content=entry.SerializeToString(deterministic=True), findings=findings)


def _root(checked: CheckedRewritten, name: RootKey, data: bytes) -> CheckedRewritten:
    try:
        number = parse_root(data).number
    except CorruptData as error:
        fault = str(error)
    else:
        if number == name.number:
            return replace(checked, content=data)
        fault = f"it is root {number}"
    return replace(checked, findings=[Finding(Kind.ROOT_DAMAGED, name.topic, name.partition, -1, checked.key, fault)])


def _orphan(row: CheckedRewritten, detail: str) -> Finding:
    return Finding(Kind.ORPHAN, row.topic, row.partition, -1, row.key, detail)


def _age(key: RootKey) -> tuple[int, int, int]:
    return key.epoch, key.number, key.attempt
