"""The last offset of each key in a part of a log, in bounded memory.

Keys are compared by a 128-bit hash. The hash is keyed with a secret, so nobody can choose two keys with the same hash.
"""

from array import array
from hashlib import blake2b

_ENTRY_BYTES = 24
_LOAD = 0.9
"""The part of the slots that may be in use. Kafka's ``log.cleaner.io.buffer.load.factor`` has the same default."""
_HASH_BYTES = 16
_FREE = -1


class KeyMapFull(Exception):
    """The map has no room for another key."""


class KeyMap:
    """An open-addressing hash table of at most ``max_bytes``, with room for about ``max_bytes * 0.9 / 24`` keys."""

    def __init__(self, max_bytes: int, *, secret: bytes) -> None:
        """``secret``: the key of the hash, up to 64 random bytes."""
        # One slot is always free, where the search for an unknown key ends.
        self._slots = max(2, max_bytes // _ENTRY_BYTES)
        self._most = max(1, int(self._slots * _LOAD))
        self._secret = secret
        self._hashes = array("Q", [0]) * (2 * self._slots)
        self._offsets = array("q", [_FREE]) * self._slots
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> None:
        """Set the last offset of a key. Offsets must not descend. Raises KeyMapFull."""
        high, low, slot = self._find(key)
        if self._offsets[slot] == _FREE:
            if self._count >= self._most:
                raise KeyMapFull(f"more than {self._most} keys")
            self._count += 1
            self._hashes[2 * slot] = high
            self._hashes[2 * slot + 1] = low
        self._offsets[slot] = offset

    def last_offset(self, key: bytes) -> int:
        """Return the last offset of a key, or -1."""
        return self._offsets[self._find(key)[2]]

    def _find(self, key: bytes) -> tuple[int, int, int]:
        """Return the two halves of the key's hash, and its slot or the free one where it belongs."""
        digest = blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()
        high, low = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
        hashes, offsets, slots = self._hashes, self._offsets, self._slots
        slot = high % slots
        while offsets[slot] != _FREE and (hashes[2 * slot] != high or hashes[2 * slot + 1] != low):
            slot = slot + 1 if slot + 1 < slots else 0
        return high, low, slot
