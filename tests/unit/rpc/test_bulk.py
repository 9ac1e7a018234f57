"""A message with a separate large field has protobuf's encoding on the wire."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.rpc.bulk import Bulk
from kafscale.v1.storage_pb2 import ScanPiece

NUMBER = ScanPiece.RECORDS_FIELD_NUMBER


@given(
    st.builds(ScanPiece, detail=st.text(max_size=200), next_offset=st.integers(0, 2**63 - 1)),
    st.sampled_from([1, 127, 128, 2**14 - 1, 2**14, 2**21 + 1]),
)
def test_the_encoding_equals_that_of_the_whole_message(piece: ScanPiece, size: int) -> None:
    records = bytes(size)
    whole = ScanPiece.FromString(piece.SerializeToString() + ScanPiece(records=records).SerializeToString())
    bulk = Bulk(piece, NUMBER, memoryview(records))
    assert ScanPiece.FromString(bulk.encoded()) == bulk.whole() == whole
    assert not piece.records
