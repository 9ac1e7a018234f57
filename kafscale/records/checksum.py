"""CRC-32C (Castagnoli), the checksum of magic-2 batches and of segments."""

import crc32c as _crc32c

Buffer = bytes | bytearray | memoryview


crc32c = _crc32c.crc32c
"""``crc32c(data, value=0)``: the unsigned 32-bit CRC-32C of ``data``. ``value`` is the CRC of the preceding bytes."""
