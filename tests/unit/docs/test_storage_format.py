"""docs/reference/storage-format.md shows the bytes that the product writes, and its tables decode them."""

import re
from pathlib import Path

import pytest

from kafscale import paths
from kafscale.catalog.topic_object import parse_topic_object
from kafscale.objects.lifecycle import Rule, dangers
from kafscale.records.batch import BatchHeader, peek
from kafscale.rewritten.index import parse_rewritten_index
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.rewritten.object import parse_object
from kafscale.rewritten.root import parse_root
from kafscale.rewritten.verify import verify_rewritten_index
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, SegmentFooter, SegmentHeader
from kafscale.segment.index import INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, parse_index
from kafscale.segment.verify import verify_segment
from kafscale_tools.recovery.backup_format import parse_manifest
from tests.support.samples.segments import KAFSCALE_1_SEGMENT
from tests.unit.docs.samples import SAMPLES, dump

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "storage-format.md").read_text()
GOLDEN = ROOT / "tests" / "golden"


def _example(name: str) -> str:
    [found] = re.findall(rf"<!-- example: {name} -->\n```\w*\n(.*?)\n```\n", PAGE, re.DOTALL)
    return str(found)


def _bytes(name: str) -> bytes:
    """Of a hexadecimal dump."""
    lines = _example(name).splitlines()
    data = b"".join(bytes.fromhex(line[10:57]) for line in lines)
    assert [int(line[:8], 16) for line in lines] == list(range(0, len(data), 16))
    return data


def _decoded(table: str, data: bytes) -> tuple[dict[str, int | bytes], int]:
    """The fields of ``data`` by a table of the page, and where they end. Each begins where the one before ends."""
    [rows] = re.findall(rf"<!-- table: {table} -->\n.*\n.*\n((?:\|.*\n)+)", PAGE)
    fields: dict[str, int | bytes] = {}
    end = 0
    for row in rows.splitlines():
        offset, size, kind, name = (cell.strip() for cell in row.split("|")[1:5])
        assert int(offset) == end
        end += int(size)
        raw = data[int(offset) : end]
        fields[name] = raw if kind == "bytes" else int.from_bytes(raw, "big", signed=kind == "int")
        if kind == "bytes":
            stated = re.search(r"`((?:[0-9a-f]{2} ?)+)`", row)
            assert stated is not None
            assert bytes.fromhex(stated[1]) == raw
    return fields, end


@pytest.mark.parametrize("name", SAMPLES)
def test_an_example_is_what_the_product_writes(name: str) -> None:
    assert _example(name) == dump(SAMPLES[name])


def test_the_example_of_a_segment_is_whole() -> None:
    assert verify_segment(_bytes("segment")) == []


@pytest.mark.parametrize("data", [_bytes("segment"), KAFSCALE_1_SEGMENT.read_bytes()], ids=["example", "KafScale 1"])
def test_the_tables_of_a_segment_decode_one(data: bytes) -> None:
    fields, end = _decoded("segment header", data)
    header = SegmentHeader.parse(data)
    assert end == HEADER_SIZE
    assert {name: value for name, value in fields.items() if name not in ("magic", "version")} == {
        name: getattr(header, name) for name in ("flags", "base_offset", "message_count", "created_ms", "epoch")
    }
    fields, end = _decoded("segment footer", data[-FOOTER_SIZE:])
    footer = SegmentFooter.parse(data)
    assert end == FOOTER_SIZE
    assert (fields["crc"], fields["last_offset"]) == (footer.crc, footer.last_offset)


def test_the_table_of_a_batch_decodes_its_header() -> None:
    data = _bytes("segment")
    fields, end = _decoded("batch header", data[HEADER_SIZE:])
    header = peek(data, HEADER_SIZE)
    assert tuple(fields) == BatchHeader._fields
    assert tuple(fields.values()) == header
    assert end == header.size - (header.batch_length - (end - 12)) == 61


def test_the_tables_of_an_index_decode_one() -> None:
    data = _bytes("index")
    index = parse_index(data)
    fields, end = _decoded("index header", data)
    assert end == INDEX_HEADER_SIZE
    assert (fields["count"], fields["interval"]) == (len(index.offsets), index.interval)
    for number, (offset, position) in enumerate(zip(index.offsets, index.positions, strict=True)):
        entry, size = _decoded("index entry", data[end + number * INDEX_ENTRY_SIZE :])
        assert size == INDEX_ENTRY_SIZE
        assert entry == {"offset": offset, "position": position}
        assert peek(_bytes("segment"), position).base_offset == offset


def test_the_examples_of_a_rewritten_log_belong_together() -> None:
    root = parse_root(_bytes("root"))
    entry = root.entries[-1].found
    assert entry is not None
    parsed = parse_object(entry, _bytes("rewritten object"), check_batches=True)
    data = _bytes("rewritten index")
    index = parse_rewritten_index(data)
    assert verify_rewritten_index(index, parsed) == []
    fields, end = _decoded("rewritten index header", data)
    assert (fields["version"], fields["count"]) == (2, len(index.crcs))
    for number, crc in enumerate(index.crcs):
        fields, size = _decoded("rewritten index entry", data[end:])
        assert fields == {"offset": index.offsets[number], "position": index.positions[number], "crc": crc}
        end += size
    fields, size = _decoded("rewritten index footer", data[end:])
    assert (fields["next_offset"], fields["end"], end + size) == (index.offsets[-1], index.positions[-1], len(data))


def test_the_table_of_a_backups_part_decodes_its_head() -> None:
    for data in (_bytes("backup part"), (GOLDEN / "backup" / "00000000").read_bytes()):
        fields, end = _decoded("backup part", data)
        assert (fields["version"], end) == (1, 10)


def test_the_example_of_a_topic_object_is_the_golden_one() -> None:
    golden = (GOLDEN / "catalog" / "orders.json").read_text()
    assert _example("topic object") == golden.rstrip("\n")
    assert parse_topic_object(golden.encode()).name == "orders"


def test_the_example_of_a_backups_manifest_is_one() -> None:
    assert parse_manifest(_example("backup manifest").encode()).backup == paths.BackupId(1_700_000_000_000, 17)


def test_every_kind_of_key_has_a_row() -> None:
    """With the placeholders of the page filled in, each row is a key that the product builds."""
    offset, epoch = "00000000000000001000", "00000000000000000007"
    rows = re.findall(r"^\| `(NS/[^`]+)`", PAGE, re.MULTILINE)
    filled = {
        row.replace("NS", "production")
        .replace("NEXT", offset.replace("1000", "1100"))
        .replace("ATTEMPT", "12")
        .replace("TOPIC", "orders")
        .replace("PARTITION", "0")
        .replace("SINK-EPOCH", epoch)
        .replace("SINK", "s")
        .replace("EPOCH", "3")
        .replace("BASE", offset)
        .replace("END", offset)
        .replace("TIME", "1700000000000")
        .replace("TOKEN", "run-1")
        .replace("REVISION", "17")
        .replace("RUN", "4ksrqv5lp2d8")
        .replace("NUMBER", offset)
        .replace("PART", "00000000")
        .replace("NAME", "20261122T191700Z")
        for row in rows
    }
    backup = paths.BackupId(1_700_000_000_000, 17)
    stage = paths.StageKey("production", "s", 7, 1_700_000_000_000, "run-1")
    assert filled == {
        paths.segment_key("production", "orders", 0, 1000),
        paths.index_key("production", "orders", 0, 1000),
        paths.catalog_page_key("production", "orders", 0, 1000, 3),
        str(RewrittenKey("production", "orders", 0, 1000, 1100, 3, 12)),
        str(RewrittenKey("production", "orders", 0, 1000, 1100, 3, 12, "index")),
        str(RootKey("production", "orders", 0, 1000, 3, 12)),
        paths.topic_object_key("production", "orders"),
        paths.intake_key("production", "4ksrqv5lp2d8", 1000),
        str(paths.IntakeKey("production", "4ksrqv5lp2d8", None)),
        paths.producer_snapshot_key("production", "orders", 0, 1000, 3),
        str(stage),
        f"{stage}.manifest",
        paths.cluster_mark_key("production"),
        paths.probe_key("production", "run-1"),
        str(paths.BackupKey("production", backup, 0)),
        paths.backup_mark_key("production"),
        paths.etcd_snapshot_part_key("production", "20261122T191700Z", 0),
    }


def test_the_lifecycle_rules_of_the_page_are_safe_and_the_one_it_warns_of_is_not() -> None:
    prefixes = re.findall(r'"Prefix": "([^"]+)"', PAGE)
    assert prefixes
    assert dangers([Rule("r", prefix, "deletes") for prefix in prefixes], "production") == []
    assert dangers([Rule("r", "production/", "deletes")], "production") != []
