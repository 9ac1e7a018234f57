"""Records for property tests, and legacy message sets encoded by hand."""

import struct
import zlib

from hypothesis import strategies as st

from kafscale.records.record import Record

int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), maybe_bytes), max_size=4).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Generate 1 to 20 records with increasing offsets, with gaps, from any base offset."""
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 20))):
        records.append(Record(offset, draw(int64), draw(maybe_bytes), draw(maybe_bytes), draw(headers)))
        offset += draw(st.integers(1, 3) | st.integers(1, 2**26))
    return records


def _field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    value: bytes | None,
    *,
    key: bytes | None = None,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 0,
    offset: int = 0,
) -> bytes:
    """Return a message of magic 0 or 1 with a valid CRC-32."""
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    body += _field(key) + _field(value)
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body
