"""CRC-32C (Castagnoli), the checksum of magic-2 batches and of segments."""

import crc32c as _crc32c

Buffer = bytes | bytearray | memoryview


crc32c = _crc32c.crc32c
"""``crc32c(data, value=0)``: the CRC-32C of ``data``, unsigned, 32 bits; ``value`` is that of what came before it."""
