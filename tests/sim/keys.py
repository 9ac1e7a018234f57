"""The keys of records for compacted topics, and which record is which: its value, or a header of a tombstone, tells.

The unique value of a record ends with its key after the last slash, and with ``=`` and padding, or ``!`` if the record
is a tombstone. Other records have no key.
"""

from kafscale.records.record import Record
from tests.support.compacted import Key

_ID = "id"


def with_key(name: bytes, key: bytes, padding: bytes | None) -> bytes:
    """Return the unique value of a record; of a tombstone if ``padding`` is None."""
    return b"%s/%s!" % (name, key) if padding is None else b"%s/%s=%s" % (name, key, padding)


def key_of(value: bytes) -> Key:
    """Return the key in the unique value of a record; an empty one for a record without a key."""
    end = value[value.rfind(b"/") + 1 :]
    return Key(end[:-1], True) if end.endswith(b"!") else Key(end.partition(b"=")[0] if b"=" in end else b"", False)


def record_of(value: bytes, delta: int, timestamp: int) -> Record:
    """Return the record with this unique value."""
    key, tombstone = key_of(value)
    if tombstone:
        return Record(delta, timestamp, key, None, ((_ID, value),))
    return Record(delta, timestamp, key or None, value)


def value_of(record: Record) -> bytes:
    """Return the unique value of a record, or bytes that no record has if its parts do not match."""
    value = record.value
    if value is None:
        value = dict(record.headers).get(_ID) or b""
    key, tombstone = key_of(value)
    if (key or None, tombstone) != (record.key, record.value is None):
        return b"key %r, value %r, headers %r" % (record.key, record.value, record.headers)
    return value
