"""Decompression with the results of `kafscale.records.codecs`, but faster for zstd."""

import zstandard

from kafscale.records.checksum import Buffer
from kafscale.records.codecs import Codec, decompress

_USUAL_RATIO = 32
_LEAST_ROOM = 1 << 16
_RLE_BLOCK = 1
_CHECKSUM_BYTES = 4


class Unpacker:
    """Decompresses batches to at most ``most_bytes`` each.

    `decompress` creates a decompressor for each batch, which for zstd takes longer than decompressing the batch, so
    this class keeps one. Unusual data, and data that it rejects, are left to `decompress`.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._zstd = zstandard.ZstdDecompressor()

    def unpack(self, codec: Codec, data: Buffer) -> bytes:
        """Return ``data`` decompressed. Raises CorruptBatch as `decompress` does."""
        if codec is Codec.ZSTD:
            room = min(self.most_bytes, max(_LEAST_ROOM, _USUAL_RATIO * len(data)))
            try:
                frame = zstandard.get_frame_parameters(data)
                unknown = frame.content_size == zstandard.CONTENTSIZE_UNKNOWN
                if (unknown or 0 < frame.content_size <= room) and _is_one_frame(data, has_checksum=frame.has_checksum):
                    return self._zstd.decompress(data, max_output_size=room)
            except zstandard.ZstdError:
                pass
        return decompress(codec, data, self.most_bytes)


def _is_one_frame(data: Buffer, *, has_checksum: bool) -> bool:
    """Return whether nothing follows the first zstd frame (RFC 8878, 3.1.1), which the decompressor ignores."""
    position, last = zstandard.frame_header_size(data), False
    while not last and position < len(data):
        header = int.from_bytes(data[position : position + 3], "little")
        last = bool(header & 1)
        position += 3 + (1 if header >> 1 & 3 == _RLE_BLOCK else header >> 3)
    return last and position + _CHECKSUM_BYTES * has_checksum == len(data)
