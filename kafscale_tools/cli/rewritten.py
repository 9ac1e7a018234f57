"""The output of `kafscale inspect` for rewritten objects, their indexes, and roots."""

from collections.abc import Iterator
from uuid import UUID

import click

from kafscale.errors import CorruptData, KafscaleError
from kafscale.rewritten.index import parse_rewritten_index
from kafscale.rewritten.keys import RewrittenKey, RootKey, parse_rewritten_key, rewritten_prefix, roots_prefix
from kafscale.rewritten.object import parse_object, verify_object
from kafscale.rewritten.root import parse_root, stored_crc
from kafscale.rewritten.verify import verify_rewritten_index
from kafscale.segment.format import SegmentFooter, SegmentHeader
from kafscale.segment.reader import ParsedSegment
from kafscale_tools.cli.present import facts, table, time_text
from kafscale_tools.cli.source import Source, is_missing


def kind_by_name(place: Source) -> str | None:
    """Return the kind of object that has this name, or None if it is the name of something else."""
    name = str(place).rpartition("/")[2]
    if isinstance(parse_rewritten_key(roots_prefix("any", "any", 0) + name), RootKey):
        return "root"
    key = _key(place)
    return None if key is None else "rewritten" if key.kind == "kfs" else "rewritten index"


def verify_rewritten(place: Source, data: bytes) -> list[str]:
    """Return what is wrong with a rewritten object. The name is compared too, if it is that of one."""
    try:
        _parsed(place, data)
    except CorruptData as error:
        return [str(error)]
    return []


def compare_rewritten_index(place: Source, data: bytes) -> list[str]:
    """Return in what a valid index differs from its object. Raises ClickException if that cannot be read."""
    at = place.with_suffix(".kfs")
    try:
        return verify_rewritten_index(parse_rewritten_index(data), _parsed(at, at.read()))
    except CorruptData as error:
        return [f"{at}: {error}"]
    except (OSError, KafscaleError) as error:
        if not is_missing(error):
            raise click.ClickException(f"cannot read {at}: {error}") from error
        click.echo(f"\nNo object {at} to compare it with: only the index itself was verified.")
        return []


def rewritten_index_lines(data: bytes) -> Iterator[str]:
    """Yield the description of an index. Raises CorruptData."""
    index = parse_rewritten_index(data)
    yield ""
    yield f"Entries ({len(index.crcs)})"
    rows = [
        (str(index.offsets[number]), str(index.positions[number]), f"{crc:#010x}")
        for number, crc in enumerate(index.crcs)
    ]
    yield from table(("offset", "position", "checksum"), rows)
    yield ""
    yield "Footer"
    yield from facts([("next offset", str(index.offsets[-1])), ("end", str(index.positions[-1]))])


def root_lines(data: bytes) -> Iterator[str]:
    """Yield the description of a root. Raises CorruptData."""
    root = parse_root(data)
    compaction = "none under way"
    if root.compaction is not None:
        compaction = f"reached {root.compaction.next_offset}, ends at {root.compaction.end}"
    yield ""
    yield "Root"
    yield from facts(
        [
            ("number", str(root.number)),
            ("topic id", str(UUID(bytes=root.topic_id))),
            ("offsets", f"{root.start}-{root.through - 1}"),
            ("first dirty offset", str(root.first_dirty)),
            ("compaction", compaction),
            ("checksum", f"{stored_crc(data):#010x}"),
        ]
    )
    yield ""
    yield f"Epochs ({len(root.epochs)})"
    yield from table(("epoch", "first offset"), [(str(one.epoch), str(one.first_offset)) for one in root.epochs])
    yield ""
    yield f"Entries ({len(root.entries)})"
    rows = []
    for entry in root.entries:
        found, offsets = entry.found, f"{entry.start}-{entry.end - 1}"
        if found is None:
            rows.append((offsets, "0", "0", "0", "-", "-", "-", "-"))
            continue
        name = str(RewrittenKey.of(found, "any", "any", 0)).removeprefix(rewritten_prefix("any", "any", 0))
        times = (time_text(found.min_timestamp), time_text(found.max_timestamp))
        rows.append(
            (
                offsets,
                str(found.size),
                str(found.records),
                str(found.control_records),
                *times,
                f"{found.crc:#010x}",
                name,
            )
        )
    heads = ("offsets", "bytes", "records", "control", "oldest batch", "max timestamp", "checksum", "object")
    yield from table(heads, rows, left=("oldest batch", "max timestamp", "object"))
    yield ""
    yield f"Obsolete ({len(root.obsolete)})"
    yield from (f"  {key}" for key in root.obsolete)


def _parsed(place: Source, data: bytes) -> ParsedSegment:
    """Verify a rewritten object. Raises CorruptData."""
    key = _key(place)
    if key is None:
        header, footer = SegmentHeader.parse(data, may_be_empty=True), SegmentFooter.parse(data)
        key = RewrittenKey("any", "any", 0, header.base_offset, footer.last_offset + 1, header.epoch, 1)
    return parse_object(verify_object(key, data, check_batches=True), data)


def _key(place: Source) -> RewrittenKey | None:
    """Return the key in the name of an object or index, whose topic and partition do not matter here."""
    key = parse_rewritten_key(rewritten_prefix("any", "any", 0) + str(place).rpartition("/")[2])
    return key if isinstance(key, RewrittenKey) else None
