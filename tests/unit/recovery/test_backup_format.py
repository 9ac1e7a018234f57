"""The bytes of a snapshot: snapshots of earlier releases can be read, and damaged ones are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafscale.paths import BackupId
from kafscale.records.checksum import crc32c
from kafscale_tools.recovery.backup_format import (
    CorruptBackup,
    Item,
    Manifest,
    Part,
    encode_part,
    parse_manifest,
    parse_part,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "backup"
ITEMS = [Item("cluster", b"\x08\x01"), Item("groups/3/caf%C3%A9/header", b""), Item("topics/orders", bytes(range(256)))]
DATA = encode_part(ITEMS)
PART = Part(len(ITEMS), len(DATA), crc32c(DATA))
MANIFEST = Manifest("iiL196Ctcr2ySsHvN51hHw", "default", BackupId(1_700_000_000_000, 17), "0.1.0", (PART,))


def test_format_1_is_written_and_read_unchanged() -> None:
    assert (GOLDEN / "00000000").read_bytes() == DATA
    assert (GOLDEN / "manifest").read_bytes() == MANIFEST.encode()
    assert parse_manifest(MANIFEST.encode()) == MANIFEST
    assert list(parse_part(DATA, PART)) == ITEMS


def test_every_wrong_byte_of_a_part_is_detected() -> None:
    for position in range(len(DATA)):
        broken = bytearray(DATA)
        broken[position] ^= 0x40
        with pytest.raises(CorruptBackup):
            parse_part(bytes(broken), PART)
    with pytest.raises(CorruptBackup):
        parse_part(DATA[:-1], PART)


def test_lengths_beyond_a_part_are_refused_even_if_the_manifest_matches() -> None:
    for broken in (DATA[:4] + b"\0\2" + DATA[6:], DATA[:6] + b"\0\0\0\4" + DATA[10:], DATA[:-10], b""):
        with pytest.raises(CorruptBackup):
            parse_part(broken, Part(len(ITEMS), len(broken), crc32c(broken)))


@pytest.mark.parametrize(
    "broken",
    [
        MANIFEST.encode().replace(b'"revision": 17', b'"revision": 18'),
        MANIFEST.encode().replace(b'"format": 1', b'"format": 2'),
        MANIFEST.encode()[:-3],
        b"[]",
        b"",
        b"\xff",
    ],
)
def test_a_changed_manifest_is_refused(broken: bytes) -> None:
    with pytest.raises(CorruptBackup):
        parse_manifest(broken)


@pytest.mark.parametrize(
    "changed",
    [
        {"version": "\x1b[2J"},
        {"cluster_id": "\ud800"},
        {"revision": "17"},
        {"created_ms": -1},
        {"parts": [{"keys": 1.5, "bytes": 1, "crc": "0"}]},
    ],
)
def test_a_manifest_with_unsuitable_values_is_refused_even_if_its_checksum_is_right(changed: dict[str, Any]) -> None:
    fields = json.loads(MANIFEST.encode()) | changed
    del fields["crc"]
    crc = crc32c(json.dumps(fields, separators=(",", ":"), sort_keys=True).encode())
    with pytest.raises(CorruptBackup, match="value"):
        parse_manifest(json.dumps({**fields, "crc": f"{crc:08x}"}).encode())
