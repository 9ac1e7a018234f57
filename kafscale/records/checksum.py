"""CRC-32C (Castagnoli), the checksum of magic-2 batches and of segments."""

import crc32c as _crc32c

Buffer = bytes | bytearray | memoryview


def crc32c(data: Buffer, value: int = 0) -> int:
    """The CRC-32C of ``data`` as an unsigned 32-bit number; ``value`` is the CRC of what came before it."""
    return _crc32c.crc32c(data, value)
