"""`kafscale inspect` on golden, valid and damaged files."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafscale.intake.format import encode
from kafscale.objects.packs import Packs
from kafscale.records.batch import seal, with_log_append_time
from kafscale.records.record import Record, build_batch
from kafscale.segment.index import build_index
from kafscale_tools.cli.main import main
from tests.support.samples import intake, rewritten
from tests.support.samples.catalog import PAGE, TOPIC_OBJECT
from tests.support.samples.segments import (
    KAFSCALE_1_INDEX,
    KAFSCALE_1_SEGMENT,
    make_batch,
    make_segment,
    small_segment,
)


def _inspect(*arguments: str | Path, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)], env=env, catch_exceptions=False)


def _rows(output: str, section: str) -> list[list[str]]:
    """Return the words of a section's lines after its header."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(section))
    rows = []
    for line in lines[start + 2 :]:
        if not line:
            break
        rows.append(line.split())
    return rows


def test_a_segment_of_kafscale_1_is_printed_with_header_batches_and_footer() -> None:
    result = _inspect("--verify", KAFSCALE_1_SEGMENT)

    assert result.exit_code == 0
    assert "17,013 bytes" in result.output
    assert "base offset  0\n" in result.output
    assert "messages     752\n" in result.output
    assert "epoch        0 (imported from KafScale 1)" in result.output
    batches = _rows(result.output, "Batches (17)")
    assert len(batches) == 17
    assert batches[0] == ["32", "1935", "0-49", "50", "none", "0", "2023-11-14", "22:13:20.490Z", "-"]
    assert [row[4] for row in batches[::3]] == ["none", "gzip", "snappy", "lz4", "zstd", "none"]
    assert "last offset  751" in result.output
    assert "0x9667b42f, correct" in result.output
    assert result.output.endswith("Verified: no damage.\n")


def test_the_columns_of_a_table_are_aligned() -> None:
    lines = _inspect(KAFSCALE_1_SEGMENT).output.splitlines()
    start = lines.index("Batches (17)")

    ends = {line.index("Z") if "Z" in line else None for line in lines[start + 2 : start + 19]}
    assert len(ends) == 1


def test_an_index_is_printed_and_compared_with_its_segment() -> None:
    result = _inspect("--verify", KAFSCALE_1_INDEX)

    assert result.exit_code == 0
    assert "interval  100 messages" in result.output
    assert _rows(result.output, "Entries (8)")[-1] == ["700", "16076"]
    assert result.output.endswith("Verified: no damage.\n")


def test_records_are_decoded_and_shortened() -> None:
    result = _inspect("--records", "--width", "20", KAFSCALE_1_SEGMENT)

    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.output.splitlines()]
    assert (
        '       0  2023-11-14 22:13:20.000Z  null      null                                  "h"="v0" "n"=null' in lines
    )
    assert '       1  2023-11-14 22:13:20.010Z  "key-1"   "value 1 value 1 "' in lines
    assert '       2  2023-11-14 22:13:20.020Z  "key-2"   "value 2 value 2 valu"... (24 bytes)' in lines
    assert sum('"key-' in line for line in lines) == 642
    assert sum('"last"' in line for line in lines) == 2


def test_the_contents_of_a_record_cannot_move_the_cursor(tmp_path: Path) -> None:
    hostile = Record(0, 5, b"\x1b[2J", b"a\nb\xff", (("\x1b]0;h\udcff", b"\r"),))
    path = tmp_path / "s.kfs"
    path.write_bytes(make_segment([build_batch([hostile], base_offset=0)]).data)

    output = _inspect("--records", path).output

    assert '"\\x1b[2J"  "a\\nb\\xff"  "\\x1b]0;h\\xff"="\\r"' in output
    assert all(line.isprintable() for line in output.splitlines())


def test_producers_control_marks_and_append_times_are_printed(tmp_path: Path) -> None:
    idempotent = build_batch(
        [Record(0, 5, None, b"v")], base_offset=0, producer_id=77, producer_epoch=2, base_sequence=9
    )
    path = tmp_path / "s.kfs"
    path.write_bytes(make_segment([idempotent, with_log_append_time(make_batch([1]), 1000)]).data)

    rows = _rows(_inspect(path).output, "Batches (2)")

    assert rows[0][-5:] == ["77", "epoch", "2", "seq", "9"]
    assert rows[1][-4:] == ["00:00:01.000Z", "(append", "time)", "-"]


def _damaged(path: Path, at: int) -> Path:
    data = bytearray(small_segment().data)
    data[at] ^= 0x40
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (0, "not a segment"),
        (5, "segment version 65"),
        (19, "6 messages, the header says 70"),
        (31, "has epoch 3 in a segment of epoch 67"),
        (100, "checksum of the body"),
        (-3, "truncated or damaged"),
        (-16, "checksum of the body"),
    ],
)
def test_verify_exits_with_status_1_on_damage_and_names_it(tmp_path: Path, at: int, message: str) -> None:
    result = _inspect("--verify", _damaged(tmp_path / "s.kfs", at))

    assert result.exit_code == 1
    assert message in result.output.partition("Damage (")[2]


def test_without_verify_a_wrong_checksum_and_the_batches_are_printed(tmp_path: Path) -> None:
    result = _inspect(_damaged(tmp_path / "s.kfs", 100))

    assert result.exit_code == 0
    assert "WRONG, the body has" in result.output
    assert len(_rows(result.output, "Batches (3)")) == 3


def test_the_complete_batches_of_a_truncated_segment_are_printed(tmp_path: Path) -> None:
    built = small_segment()
    path = tmp_path / "s.kfs"
    path.write_bytes(built.data[: built.positions[2] + 10])

    result = _inspect("--verify", path)

    assert result.exit_code == 1
    assert len(_rows(result.output, "Batches (2)")) == 3  # two batches, and what is found where the third begins
    assert "too few for a batch header" in result.output


def test_an_undecodable_batch_is_damage(tmp_path: Path) -> None:
    good = make_batch([1, 2])
    broken = bytearray(good)
    broken[61] = 0x7F  # the first record's length
    seal(broken)
    path = tmp_path / "s.kfs"
    path.write_bytes(make_segment([good, bytes(broken)]).data)

    assert _inspect("--verify", path).exit_code == 0
    result = _inspect("--verify", "--records", path)
    assert result.exit_code == 1
    assert f"batch at {32 + len(good)} cannot be decoded" in result.output.partition("Damage (1)")[2]


def test_the_index_of_another_segment_is_damage(tmp_path: Path) -> None:
    theirs = make_segment([make_batch([1] * 7)] * 3, base_offset=1000)
    (tmp_path / "s.kfs").write_bytes(small_segment().data)
    (tmp_path / "s.index").write_bytes(build_index(theirs.offsets, theirs.positions, 5))

    result = _inspect("--verify", tmp_path / "s.index")

    assert result.exit_code == 1
    assert "but no batch begins there" in result.output.partition("Damage (")[2]


def test_an_index_next_to_a_damaged_segment_names_the_segment(tmp_path: Path) -> None:
    built = small_segment()
    _damaged(tmp_path / "s.kfs", 100)
    (tmp_path / "s.index").write_bytes(build_index(built.offsets, built.positions))

    result = _inspect("--verify", tmp_path / "s.index")

    assert result.exit_code == 1
    assert f"{tmp_path / 's.kfs'}: checksum of the body" in result.output


def test_an_index_without_its_segment_is_checked_alone(tmp_path: Path) -> None:
    shutil.copyfile(KAFSCALE_1_INDEX, tmp_path / "s.index")

    result = _inspect("--verify", tmp_path / "s.index")

    assert result.exit_code == 0
    assert f"No segment {tmp_path / 's.kfs'} to compare it with" in result.output


def test_a_damaged_index_is_reported_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "s.index").write_bytes(KAFSCALE_1_INDEX.read_bytes()[:-1])

    result = _inspect(tmp_path / "s.index")

    assert result.exit_code == 1
    assert "do not match the 8 entries" in result.output


def test_wrong_arguments_cause_a_message_with_advice(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")

    assert "No such file" in _inspect(tmp_path / "absent.kfs").output
    assert 'begins with "hell"' in _inspect(tmp_path / "notes.txt").output
    assert "is not s3://BUCKET/KEY" in _inspect("s3://bucket").output
    assert "--records needs a segment" in _inspect("--records", KAFSCALE_1_INDEX).output
    assert "Is a directory" in _inspect(tmp_path).output
    for arguments in (["s3://bucket"], [str(tmp_path)], []):
        assert _inspect(*arguments).exit_code != 0


def test_a_catalog_page_is_printed_with_its_segments() -> None:
    result = _inspect("--verify", PAGE)

    assert result.exit_code == 0
    assert "partition  orders-2\n" in result.output
    assert "topic id   00010203-0405-0607-0809-0a0b0c0d0e0f\n" in result.output
    assert "offsets    0-2147483647\n" in result.output
    rows = _rows(result.output, "Segments (3)")
    assert rows[0][:5] == ["0-751", "17013", "752", "0", "2023-11-14"]
    assert rows[1][:6] == ["752-799", "500", "48", "3", "-", "-"]
    assert result.output.endswith("Verified: no damage.\n")


def test_a_topic_object_is_printed_with_configs_and_log_starts() -> None:
    result = _inspect(TOPIC_OBJECT)

    assert result.exit_code == 0
    assert "id                 00010203-0405-0607-0809-0a0b0c0d0e0f\n" in result.output
    assert _rows(result.output, "Configs (2)")[0] == ['"compression.type"', '"zstd"']
    assert _rows(result.output, "Partitions (3)") == [["0", "0"], ["1", "1200"], ["2", "0"]]


def test_damaged_pages_and_topic_objects_are_reported(tmp_path: Path) -> None:
    page = bytearray(PAGE.read_bytes())
    page[40] ^= 1
    (tmp_path / "page").write_bytes(page)
    result = _inspect(tmp_path / "page")
    assert result.exit_code == 1
    assert "checksum of the content" in result.output

    (tmp_path / "~catalog").mkdir()
    (tmp_path / "~catalog" / "00000000000000000000-1").write_bytes(b"nothing")
    result = _inspect(tmp_path / "~catalog" / "00000000000000000000-1")
    assert result.exit_code == 1
    assert "not a catalog page" in result.output

    (tmp_path / "orders.json").write_text("{}")
    result = _inspect(tmp_path / "orders.json")
    assert result.exit_code == 1
    assert "not a topic object" in result.output


def test_an_intake_object_that_shares_a_file_is_found_by_its_key(tmp_path: Path) -> None:
    key = f"ns/~intake/{intake.RUN}/{intake.RECORDS.name}"
    packs = Packs(tmp_path, sync=False)
    packs.prepare()
    packs.create(key, intake.golden_object())
    result = _inspect("--verify", tmp_path / "objects" / key)
    assert result.output == _inspect("--verify", intake.RECORDS).output.replace(
        str(intake.RECORDS), str(tmp_path / "objects" / key)
    )
    packs.delete([key], sync=False)
    packs.close()
    assert "No such file" in _inspect(tmp_path / "objects" / key).output


def test_an_intake_object_is_printed_with_its_entries_and_their_records(tmp_path: Path) -> None:
    result = _inspect("--records", intake.RECORDS)

    assert result.exit_code == 0
    assert "checkpoint  12\n" in result.output
    assert _rows(result.output, "Entries (2)")[0] == ["orders-2", "1000-1000", "72", "3", "-"]
    assert "Records of clicks-0\n" in result.output
    assert '"three"' in result.output

    assert "kind        seal\n" in _inspect(intake.SEAL).output

    (tmp_path / "damaged").write_bytes(intake.RECORDS.read_bytes()[:-1])
    damaged = _inspect(tmp_path / "damaged")
    assert damaged.exit_code == 1
    assert "truncated or damaged" in damaged.output

    first, _ = intake.entries()
    batch = bytearray(b"".join(first.batches))
    batch[-1] ^= 1
    # The checksums of the object are correct, that of the batch is not.
    body = b"".join(
        encode("ns", "run", number=1, checkpoint=1, created_ms=0, entries=[replace(first, batches=[batch])])
    )
    (tmp_path / "batch").write_bytes(body)
    assert _inspect("--verify", intake.RECORDS).output.endswith("Verified: no damage.\n")
    damaged = _inspect("--verify", tmp_path / "batch")
    assert (damaged.exit_code, "orders-2 at offset 1000: " in damaged.output) == (1, True)


@pytest.mark.parametrize(("path", "kind"), [(PAGE, "catalog page"), (TOPIC_OBJECT, "topic object")])
def test_derived_objects_contain_no_records(path: Path, kind: str) -> None:
    result = _inspect("--records", path)

    assert result.exit_code == 2
    assert f"this is a {kind}" in result.output


def test_a_rewritten_object_is_printed_and_verified(tmp_path: Path) -> None:
    result = _inspect("--verify", "--records", "--width", "8", rewritten.OBJECT)

    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Rewritten object {rewritten.OBJECT}, 80,265 bytes\n")
    assert "0x0008 (rewritten)" in result.output
    assert [row[2] for row in _rows(result.output, "Batches (3)")] == ["1002-1002", "1007-1007", "1030-1030"]
    assert _rows(result.output, "Batches (3)")[-1][-1] == "horizon"
    assert "last offset  1099" in result.output
    assert result.output.endswith("Verified: no damage.\n")
    # The name says for which offsets the object stands.
    other = tmp_path / rewritten.OBJECT.name.replace("1100", "1200")
    shutil.copyfile(rewritten.OBJECT, other)
    result = _inspect("--verify", other)
    assert result.exit_code == 1
    assert "not those of the key" in result.output.partition("Damage (1)")[2]


def test_the_index_of_a_rewritten_object_is_printed_and_compared_with_it(tmp_path: Path) -> None:
    result = _inspect("--verify", rewritten.INDEX)

    assert result.exit_code == 0, result.output
    assert result.output.startswith("Index of a rewritten object")
    assert [row[:2] for row in _rows(result.output, "Entries (2)")] == [["1002", "32"], ["1030", "80180"]]
    assert "next offset  1100" in result.output
    copied = tmp_path / rewritten.INDEX.name
    shutil.copyfile(rewritten.INDEX, copied)
    assert "only the index itself was verified" in _inspect("--verify", copied).output
    data = bytearray(rewritten.OBJECT.read_bytes())
    data[100] ^= 1
    copied.with_suffix(".kfs").write_bytes(data)
    result = _inspect("--verify", copied)
    assert result.exit_code == 1
    assert "checksum of the body" in result.output.partition("Damage (1)")[2]
    copied.write_bytes(rewritten.INDEX.read_bytes()[:-1])
    assert _inspect(copied).exit_code == 1


def test_a_root_is_printed_and_its_checksum_verified(tmp_path: Path) -> None:
    result = _inspect("--verify", rewritten.ROOT)

    assert result.exit_code == 0, result.output
    assert "offsets             1010-1199\n" in result.output
    assert "compaction          reached 1200, ends at 2000\n" in result.output
    assert _rows(result.output, "Epochs (2)") == [["3", "900"], ["5", "1020"]]
    named, empty = _rows(result.output, "Entries (2)")
    assert (named[0], named[-1], empty[0], empty[-1]) == ("1010-1099", rewritten.OBJECT.name, "1100-1199", "-")
    assert "  ns/orders/2/segment-00000000000000001000.kfs\n" in result.output
    damaged = tmp_path / rewritten.ROOT.name
    damaged.write_bytes(rewritten.ROOT.read_bytes()[:-1] + b"?")
    result = _inspect(damaged)
    assert result.exit_code == 1
    assert "root has checksum" in result.output.partition("Damage (1)")[2]
