"""Cases of objects that are read from the object store, which others may be able to write."""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random

from google.protobuf.message import Message

from kafscale.catalog.page import FORMAT as PAGE_FORMAT
from kafscale.catalog.page import misfit, parse_page
from kafscale.catalog.topic_object import parse_topic_object
from kafscale.errors import CorruptData
from kafscale.intake import format as intake
from kafscale.intake.tail import tail_of
from kafscale.intake.verify import verify_batches
from kafscale.records.checksum import crc32c
from kafscale.rewritten.index import parse_rewritten_index
from kafscale.rewritten.object import batches_of, index_of, parse_object, verify_object
from kafscale.rewritten.root import parse_root
from kafscale.rewritten.verify import verify_rewritten_index
from kafscale.segment import search
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE
from kafscale.segment.index import build_index, parse_index
from kafscale.segment.reader import parse_segment, parse_start, scan_batches
from kafscale.segment.verify import verify_index, verify_segment
from kafscale.v1.catalog_pb2 import CatalogContent, CatalogPage
from kafscale.v1.intake_pb2 import IntakeTable
from kafscale.v1.metadata_pb2 import ProducerSnapshot
from kafscale.v1.rewritten_pb2 import RewrittenEntry, RewrittenRoot
from kafscale_tools.recovery.backup_format import Part, parse_manifest, parse_part
from services.storage.log.producers import ProducerTable, SentBatch, Sequenced
from tests.fuzz.messages import Messages, odd_json
from tests.fuzz.record_cases import MAX_BYTES, Rows
from tests.support.samples import catalog as catalog_samples
from tests.support.samples import intake as intake_samples
from tests.support.samples import rewritten as rewritten_samples
from tests.support.samples.segments import KAFSCALE_1_SEGMENT, small_segment

_CORRUPT = (CorruptData,)
_CRC_SIZE = 4
_VARIANTS = 300


def stored_cases() -> Rows:
    """Return name, decoder, valid inputs, errors, and the function that repairs checksums, for each case."""
    built = small_segment()
    segments = [built.data, KAFSCALE_1_SEGMENT.read_bytes()]
    rewritten = rewritten_samples.golden_object()
    backup = intake_samples.GOLDEN.parent / "backup"
    producers = ProducerTable(100)
    producers.add(Sequenced(7, 0, SentBatch(0, 4, 100, 104)), 1_700_000_000_000)
    page = CatalogPage.FromString(catalog_samples.PAGE.read_bytes())
    manifest, topic = (backup / "manifest").read_bytes(), catalog_samples.TOPIC_OBJECT.read_bytes()
    return [
        ("segment", _segment, segments, _CORRUPT, _resealed_segment),
        ("segment piece", _piece, [data[HEADER_SIZE:] for data in segments], _CORRUPT, None),
        ("index", _index, [build_index(built.offsets, built.positions, 1)], _CORRUPT, None),
        ("intake", _intake, _intakes(), _CORRUPT, _resealed_intake),
        ("rewritten object", _object, [rewritten.data], _CORRUPT, _resealed_segment),
        ("rewritten index", _rewritten_index, [rewritten.index], _CORRUPT, _ends_with_crc(">I")),
        (
            "root",
            parse_root,
            _variants(RewrittenRoot, rewritten_samples.golden_root()),
            _CORRUPT,
            _ends_with_crc("<I", 5),
        ),
        ("catalog page", _page, [page.SerializeToString()], _CORRUPT, None),
        ("catalog content", _content, _variants(CatalogContent, page.content), _CORRUPT, None),
        ("topic object", _topic_object, _odd(topic), _CORRUPT, None),
        ("backup manifest", _manifest, _odd(manifest), _CORRUPT, _resealed_manifest),
        ("backup part", _backup_part, [(backup / "00000000").read_bytes()], _CORRUPT, _ends_with_crc(">I")),
        ("producers", _producers, _variants(ProducerSnapshot, producers.dump()), _CORRUPT, _ends_with_crc("<I", 5)),
    ]


def _variants(kind: type[Message], data: bytes) -> list[bytes]:
    """Return a message and variants of it with other values in its fields."""
    random, messages, message = Random(2), Messages(("orders",)), kind.FromString(data)
    changed = [messages.changed(random, message).SerializeToString() for _ in range(_VARIANTS)]
    return [data, *changed]


def _odd(data: bytes) -> list[bytes]:
    """Return JSON and variants of it with other values."""
    random, value = Random(3), json.loads(data)
    return [data, *(json.dumps(odd_json(random, value)).encode() for _ in range(_VARIANTS))]


def _intakes() -> list[bytes]:
    golden = intake_samples.golden_object()
    start, end = int.from_bytes(golden[32:40], "big"), len(golden) - intake.FOOTER_SIZE
    tables = _variants(IntakeTable, golden[start:end])
    return [intake_samples.golden_seal(), golden] + [golden[:start] + table + golden[end:] for table in tables]


def _segment(data: bytes) -> None:
    verify_segment(data)
    with suppress(CorruptData):
        parse_start(data)
    parsed = parse_segment(data, check_batches=True)
    search.first_at_or_after(parsed, 1, start_offset=0, max_bytes=MAX_BYTES)
    search.largest_timestamp(parsed, at_least=0, start_offset=0, max_bytes=MAX_BYTES)
    verify_index(parse_index(build_index(parsed.offsets, parsed.positions, 2)), parsed)


def _piece(data: bytes) -> None:
    entry = parse_index(build_index([1000], [HEADER_SIZE])).entry_for(1000)
    for at_end in (False, True):
        try:
            list(scan_batches(data, entry, at_end=at_end))
        except CorruptData:
            continue


def _index(data: bytes) -> None:
    found = parse_index(data)
    found.entry_for(5)
    verify_index(found, parse_segment(small_segment().data))


def _intake(data: bytes) -> None:
    found = intake.parse(data)
    verify_batches(found)
    for entry in found.entries:
        of_partition = [each for each in found.entries if each.partition == entry.partition]
        tail_of(of_partition, epoch=entry.epoch, start=entry.base_offset)


def _object(data: bytes) -> None:
    entry = verify_object(rewritten_samples.KEY, data, check_batches=True)
    parsed = parse_object(entry, data)
    verify_rewritten_index(parse_rewritten_index(index_of(parsed)), parsed)


def _rewritten_index(data: bytes) -> None:
    found = parse_rewritten_index(data)
    whole = rewritten_samples.golden_object()
    first, end = found.part(1005, 1 << 16)
    verify_rewritten_index(found, parse_object(RewrittenEntry.FromString(whole.entry.SerializeToString()), whole.data))
    batches_of(whole.data[found.positions[first] : found.positions[end]], found, first, end)


def _page(data: bytes) -> None:
    content = parse_page(data)
    misfit(content, catalog_samples.REF, epochs=[(3, 0), (4, 800)], log_start=10, high_watermark=2**40)


def _content(data: bytes) -> None:
    _page(CatalogPage(format=PAGE_FORMAT, crc=crc32c(data), content=data).SerializeToString())


def _topic_object(data: bytes) -> None:
    parse_topic_object(data).encode()


def _manifest(data: bytes) -> None:
    found = parse_manifest(data)
    found.encode()
    str(found).encode()


def _backup_part(data: bytes) -> None:
    count = int.from_bytes(data[6:10], "big")
    list(parse_part(data, Part(count, len(data), crc32c(data))))


def _producers(data: bytes) -> None:
    table = ProducerTable.load(data, 100)
    table.copy().expire(5)
    table.describe()
    list(table.last_batches())
    ProducerTable.load(table.dump(), 100)


def _resealed_segment(data: bytes) -> bytes:
    if len(data) < HEADER_SIZE + FOOTER_SIZE:
        return data
    out = bytearray(data)
    struct.pack_into(">I", out, len(out) - FOOTER_SIZE, crc32c(memoryview(data)[HEADER_SIZE : len(data) - FOOTER_SIZE]))
    return bytes(out)


def _resealed_intake(data: bytes) -> bytes:
    if len(data) < intake.HEADER_SIZE + intake.FOOTER_SIZE:
        return data
    end = len(data) - intake.FOOTER_SIZE
    table = min(int.from_bytes(data[32:40], "big"), end)
    out = bytearray(data)
    crc = crc32c(memoryview(data)[table:end], crc32c(memoryview(data)[: intake.HEADER_SIZE]))
    struct.pack_into(">II", out, end, crc, end - table)
    return bytes(out)


def _ends_with_crc(form: str, size: int = _CRC_SIZE) -> Callable[[bytes], bytes]:
    """Return a function that corrects the checksum in the last 4 bytes, of all bytes before the last ``size``."""

    def repair(data: bytes) -> bytes:
        if len(data) < size:
            return data
        return data[:-_CRC_SIZE] + struct.pack(form, crc32c(memoryview(data)[:-size]))

    return repair


def _resealed_manifest(data: bytes) -> bytes:
    try:
        fields = json.loads(data)
        fields.pop("crc", None)
        text = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
        return json.dumps({**fields, "crc": f"{crc32c(text):08x}"}).encode()
    except (ValueError, AttributeError, TypeError, RecursionError):
        return data
