"""`kafscale inspect`: shows and verifies segments, rewritten objects, and the objects derived from them."""

from collections.abc import Iterable, Iterator

import click

from kafscale.catalog.page import is_page
from kafscale.errors import CorruptData, KafscaleError
from kafscale.intake.format import MAGIC as INTAKE_MAGIC
from kafscale.intake.format import Kind
from kafscale.intake.format import parse as parse_intake
from kafscale.intake.verify import verify_batches
from kafscale.objects.interface import ObjectNotFound
from kafscale.records.batch import BatchHeader, walk
from kafscale.records.checksum import crc32c
from kafscale.records.codecs import codec_of
from kafscale.records.record import Record, read_records
from kafscale.rewritten.index import VERSION as REWRITTEN_INDEX_VERSION
from kafscale.rewritten.object import REWRITTEN_FLAG
from kafscale.segment.chain import batches_of
from kafscale.segment.format import (
    FOOTER_SIZE,
    HEADER_SIZE,
    SEGMENT_MAGIC,
    SEGMENT_VERSION,
    CorruptSegment,
    SegmentFooter,
    SegmentHeader,
)
from kafscale.segment.index import INDEX_VERSION, Index, is_index, parse_index
from kafscale.segment.reader import parse_segment
from kafscale.segment.verify import verify_index, verify_segment
from kafscale_tools.cli.derived import page_lines, topic_lines
from kafscale_tools.cli.present import facts, quoted, table, time_text
from kafscale_tools.cli.rewritten import (
    compare_rewritten_index,
    kind_by_name,
    rewritten_index_lines,
    root_lines,
    verify_rewritten,
)
from kafscale_tools.cli.source import Source, is_missing, parse_source

_MAX_DECODED_BYTES = 256 << 20
_KINDS = {
    "segment": "a segment",
    "rewritten": "a rewritten object",
    "index": "an index",
    "rewritten index": "the index of a rewritten object",
    "root": "a root",
    "page": "a catalog page",
    "topic": "a topic object",
    "intake": "an intake object",
}


@click.command(
    short_help="Show the contents of a segment, rewritten object, index, root, page, topic or intake object."
)
@click.argument("source", metavar="PATH-or-s3-url")
@click.option("--records", is_flag=True, help="Decode and print every record.")
@click.option(
    "--width",
    type=click.IntRange(8, 1_000_000),
    default=48,
    show_default=True,
    help="The maximum number of characters of a key, value or header to print. Longer ones end with their size.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Verify all checksums and the format; with --records, also decode all records. Exits with 1 on damage.",
)
def inspect(source: str, records: bool, width: int, verify: bool) -> None:
    """Show the contents of a segment or rewritten object (.kfs), an index (.index), a root (~rewritten/.../roots/), a
    catalog page (~catalog/), a topic object (~topics/) or an intake object (~intake/).

    Prints the header, batches and footer of a segment or rewritten object, the entries of an index or root, the
    segments that a catalog page describes, the topic that a topic object describes, or the header and entries of an
    intake object. With --verify, an index is also compared with its segment or rewritten object, the object of the same
    name with the suffix .kfs.

    An intake object of a local directory is named by objects/KEY, although it shares a file in packs/ with others.

    s3://BUCKET/KEY is read with the settings of the services: KAFSCALE_S3_ENDPOINT, KAFSCALE_S3_REGION,
    KAFSCALE_S3_ACCESS_KEY, KAFSCALE_S3_SECRET_KEY and the other KAFSCALE_S3_ settings.

    \b
    Examples:
      kafscale inspect kafscale-data/objects/default/orders/0/segment-00000000000000000000.kfs
      kafscale inspect --records --width 200 segment-00000000000000000000.kfs
      kafscale inspect --verify s3://my-bucket/default/orders/0/segment-00000000000000000000.index
    """
    place, data = _read(source)
    kind = _kind(place, data)
    if records and kind not in ("segment", "rewritten", "intake"):
        raise click.UsageError(
            f"--records needs a segment, rewritten object or intake object; this is {_KINDS[kind]}, without records"
        )
    if kind in ("segment", "rewritten"):
        findings = _show_segment(place, data, kind, records=records, width=width, verify=verify)
    elif kind == "intake":
        findings = _show_intake(place, data, records, width, verify)
    elif kind == "rewritten index":
        findings = _show_derived(place, data, kind) or (compare_rewritten_index(place, data) if verify else [])
    elif kind == "index":
        findings = _show_index(place, data, verify)
    else:
        findings = _show_derived(place, data, kind)
    _conclude(findings, verify)


def _read(source: str) -> tuple[Source, bytes]:
    try:
        place = parse_source(source)
        return place, place.read()
    except OSError as error:
        raise click.ClickException(f"cannot read {source}: {error.strerror or error}") from error
    except KafscaleError as error:
        reason = "no such object" if isinstance(error, ObjectNotFound) else error
        raise click.ClickException(f"cannot read {source}: {reason}") from error


def _kind(place: Source, data: bytes) -> str:
    named = kind_by_name(place)
    if named is not None:
        return named
    if data.startswith(SEGMENT_MAGIC):
        return "rewritten" if int.from_bytes(data[6:8], "big") & REWRITTEN_FLAG else "segment"
    if is_index(data):
        return "rewritten index" if int.from_bytes(data[4:6], "big") == REWRITTEN_INDEX_VERSION else "index"
    if data.startswith(INTAKE_MAGIC) or "/~intake/" in f"/{place}":
        return "intake"
    # Use the name too, so that objects with a damaged beginning can be inspected.
    by_name = {".kfs": "segment", ".index": "index", ".json": "topic"}.get(place.suffix)
    if by_name is not None:
        return by_name
    if is_page(data) or "/~catalog/" in f"/{place}":
        return "page"
    raise click.ClickException(
        f"{place} is not a segment, rewritten object, index, root, catalog page, topic object or intake object: it "
        f"begins with {quoted(data[:4], 16)}"
    )


def _show_segment(place: Source, data: bytes, kind: str, *, records: bool, width: int, verify: bool) -> list[str]:
    rewritten = kind == "rewritten"
    findings: list[str] = []
    if verify:
        findings = verify_rewritten(place, data) if rewritten else verify_segment(data)
    click.echo(f"{_title(kind)} {place}, {len(data):,} bytes")
    try:
        header = SegmentHeader.parse(data, may_be_empty=rewritten)
    except CorruptSegment as error:
        click.echo(f"\nHeader\n  {error}")
        return findings or [str(error)]
    click.echo("\nHeader")
    _lines(facts(_header_facts(header, rewritten)))
    footer, footer_error = _footer(data)
    end = len(data) - FOOTER_SIZE if footer else len(data)
    batches, stopped = batches_of(data, HEADER_SIZE, end)
    click.echo(f"\nBatches ({len(batches)})")
    _lines(_batch_lines(batches))
    if stopped:
        click.echo(f"  {stopped}")
    click.echo("\nFooter")
    if footer:
        computed = crc32c(memoryview(data)[HEADER_SIZE:end])
        verdict = "correct" if computed == footer.crc else f"WRONG, the body has {computed:#010x}"
        _lines(facts([("last offset", str(footer.last_offset)), ("checksum", f"{footer.crc:#010x}, {verdict}")]))
    else:
        click.echo(f"  {footer_error}")
    if records:
        findings = findings + _show_records(data, batches, width)
    return findings


def _header_facts(header: SegmentHeader, rewritten: bool) -> list[tuple[str, str]]:
    of_flags = "rewritten" if rewritten else f"codec applied by KafScale: {_codec(header.flags)}"
    return [
        ("version", str(SEGMENT_VERSION)),
        ("flags", f"{header.flags:#06x} ({of_flags})"),
        ("base offset", str(header.base_offset)),
        ("messages", str(header.message_count)),
        ("created", time_text(header.created_ms)),
        ("epoch", f"{header.epoch}{' (imported from KafScale 1)' if header.epoch == 0 else ''}"),
    ]


def _footer(data: bytes) -> tuple[SegmentFooter | None, str]:
    try:
        return SegmentFooter.parse(memoryview(data)[HEADER_SIZE:]), ""
    except CorruptSegment as error:
        return None, str(error)


def _batch_lines(batches: list[tuple[int, BatchHeader]]) -> Iterator[str]:
    heads = ("position", "bytes", "offsets", "records", "codec", "epoch", "max timestamp", "producer")
    rows = [
        (
            str(position),
            str(header.size),
            f"{header.base_offset}-{header.last_offset}",
            str(header.record_count),
            _codec(header.attributes),
            str(header.leader_epoch),
            time_text(header.max_timestamp) + (" (append time)" if header.is_log_append_time else ""),
            _producer(header),
        )
        for position, header in batches
    ]
    return table(heads, rows, left=("codec", "max timestamp", "producer"))


def _producer(header: BatchHeader) -> str:
    kinds = (("txn", header.is_transactional), ("control", header.is_control), ("horizon", header.has_horizon))
    marks = [name for name, holds in kinds if holds]
    if header.producer_id >= 0:
        marks.insert(0, f"{header.producer_id} epoch {header.producer_epoch} seq {header.base_sequence}")
    return " ".join(marks) or "-"


def _codec(bits: int) -> str:
    try:
        return codec_of(bits).name.lower()
    except CorruptData:
        return f"unknown {bits & 7}"


def _show_records(data: bytes, batches: list[tuple[int, BatchHeader]], width: int, *, of: str = "") -> list[str]:
    findings = []
    click.echo(f"\nRecords{of}")
    for position, header in batches:
        found: list[Record] = []
        fault = ""
        try:
            found.extend(read_records(data[position : position + header.size], max_bytes=_MAX_DECODED_BYTES))
        except CorruptData as error:
            fault = f"batch at {position} cannot be decoded: {error}"
            findings.append(fault)
        rows = [
            (
                str(record.offset),
                time_text(record.timestamp),
                quoted(record.key, width),
                quoted(record.value, width),
                " ".join(f"{quoted(_name(key), width)}={quoted(value, width)}" for key, value in record.headers),
            )
            for record in found
        ]
        click.echo(f"  batch at {position}")
        _lines(
            table(
                ("offset", "timestamp", "key", "value", "headers"), rows, left=("timestamp", "key", "value", "headers")
            )
        )
        if fault:
            click.echo(f"  {fault}")
    return findings


def _name(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _show_index(place: Source, data: bytes, verify: bool) -> list[str]:
    click.echo(f"Index {place}, {len(data):,} bytes")
    try:
        index = parse_index(data)
    except CorruptData as error:
        return [str(error)]
    click.echo("\nHeader")
    _lines(facts([("version", str(INDEX_VERSION)), ("interval", f"{index.interval} messages")]))
    click.echo(f"\nEntries ({len(index.offsets)})")
    rows = [(str(offset), str(position)) for offset, position in zip(index.offsets, index.positions, strict=True)]
    _lines(table(("offset", "position"), rows))
    return _compare(index, place.with_suffix(".kfs")) if verify else []


def _show_intake(place: Source, data: bytes, records: bool, width: int, verify: bool) -> list[str]:
    """Show an intake object. The checksums of header, table and entries are always verified."""
    click.echo(f"Intake object {place}, {len(data):,} bytes")
    try:
        found = parse_intake(data)
    except CorruptData as error:
        return [str(error)]
    header = found.header
    click.echo("\nHeader")
    _lines(
        facts(
            [
                ("kind", header.kind.name.lower()),
                ("run", found.run_id),
                ("number", str(header.number)),
                ("checkpoint", str(header.checkpoint)),
                ("created", time_text(header.created_ms)),
            ]
        )
    )
    if header.kind is Kind.SEAL:
        return []
    click.echo(f"\nEntries ({len(found.entries)})")
    rows = [
        (
            f"{entry.partition.topic}-{entry.partition.partition}",
            f"{entry.base_offset}-{entry.next_offset - 1}",
            str(entry.size),
            str(entry.epoch),
            " ".join(f"{each.sink} epoch {each.epoch}: {each.batches}" for each in entry.sinks) or "-",
        )
        for entry in found.entries
    ]
    _lines(table(("partition", "offsets", "bytes", "epoch", "batches of sinks"), rows, left=("partition",)))
    findings = verify_batches(found) if verify else []
    for entry in found.entries if records else ():
        batches = b"".join(entry.batches)
        name = f" of {entry.partition.topic}-{entry.partition.partition}"
        findings += _show_records(batches, list(walk(batches)), width, of=name)
    return findings


def _show_derived(place: Source, data: bytes, kind: str) -> list[str]:
    click.echo(f"{_title(kind)} {place}, {len(data):,} bytes")
    lines = {"page": page_lines, "topic": topic_lines, "root": root_lines, "rewritten index": rewritten_index_lines}
    try:
        _lines(lines[kind](data))
    except CorruptData as error:
        return [str(error)]
    return []


def _title(kind: str) -> str:
    return _KINDS[kind].split(" ", 1)[1].capitalize()


def _compare(index: Index, segment: Source) -> list[str]:
    try:
        return verify_index(index, parse_segment(segment.read()))
    except CorruptData as error:
        return [f"{segment}: {error}"]
    except (OSError, KafscaleError) as error:
        if not is_missing(error):
            raise click.ClickException(f"cannot read {segment}: {error}") from error
        click.echo(f"\nNo segment {segment} to compare it with: only the index itself was verified.")
        return []


def _conclude(findings: list[str], verify: bool) -> None:
    if findings:
        click.echo(f"\nDamage ({len(findings)})")
        _lines(f"  {finding}" for finding in findings)
        raise SystemExit(1)
    if verify:
        click.echo("\nVerified: no damage.")


def _lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
