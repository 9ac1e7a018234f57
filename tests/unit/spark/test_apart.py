"""Splitting a message from its large field gives the same result as parsing it with protobuf."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.apart import taken_apart

NUMBER = pb.ScanPiece.RECORDS_FIELD_NUMBER
_INT64 = st.integers(-(2**63), 2**63 - 1)
_PIECES = st.builds(
    pb.ScanPiece,
    status=st.sampled_from([0, 1, 5]),
    detail=st.text(max_size=200),
    first_offset=_INT64,
    next_offset=_INT64,
    records=st.binary(max_size=300),
    count=_INT64,
)


def _whole(rest: bytes, records: memoryview) -> pb.ScanPiece:
    piece = pb.ScanPiece.FromString(rest)
    assert not piece.records
    piece.records = bytes(records)
    return piece


@given(_PIECES)
def test_the_parts_equal_the_message(piece: pb.ScanPiece) -> None:
    assert _whole(*taken_apart(piece.SerializeToString(), NUMBER)) == piece


@given(_PIECES, _PIECES)
def test_a_repeated_field_is_merged_as_in_protobuf(first: pb.ScanPiece, second: pb.ScanPiece) -> None:
    data = first.SerializeToString() + second.SerializeToString()
    assert _whole(*taken_apart(data, NUMBER)) == pb.ScanPiece.FromString(data)


def test_fields_of_every_kind_are_skipped() -> None:
    stage = pb.Stage(key="a stage", size=7, crc=1 << 31, records=-1)
    rest, key = taken_apart(stage.SerializeToString(), pb.Stage.KEY_FIELD_NUMBER)
    assert bytes(key) == b"a stage"
    assert pb.Stage.FromString(rest) == pb.Stage(size=7, crc=1 << 31, records=-1)
    sixty_four_bits = b"\x09" + bytes(8)
    assert taken_apart(sixty_four_bits, NUMBER)[0] == sixty_four_bits


@given(_PIECES, st.integers(1, 600))
def test_a_truncated_message_is_handled_as_in_protobuf(piece: pb.ScanPiece, cut: int) -> None:
    data = piece.SerializeToString()[:-cut]
    try:
        expected = pb.ScanPiece.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            pb.ScanPiece.FromString(taken_apart(data, NUMBER)[0])
    else:
        assert _whole(*taken_apart(data, NUMBER)) == expected


@pytest.mark.parametrize("data", [b"\x0b", b"\xff" * 11, b"\x42\x05abc", b"\x09abc"])
def test_data_that_is_not_a_message_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        taken_apart(data, NUMBER)
