"""The format of metadata snapshots: parts that contain keys, and a manifest that is stored last. No IO.

``{namespace}/~backups/{created, ms, 13 digits}-{revision}/{number, 8 digits}`` is a part: the magic ``KFSB``, the
version (2 bytes) and the number of keys (4); for each key its length (4), its UTF-8 bytes, the value's length (4) and
the value; and finally the CRC-32C of all this (4). Integers are big-endian. Keys are sorted and do not contain the
namespace's root. ``.../manifest`` is JSON::

    {
      "format": 1,
      "cluster_id": "iiL196Ctcr2ySsHvN51hHw",
      "namespace": "default",
      "created_ms": 1700000000000,
      "revision": 17,
      "version": "0.1.0",
      "parts": [{"keys": 3, "bytes": 120, "crc": "e3069283"}],
      "crc": "0123abcd"
    }

``crc`` is the CRC-32C of the same JSON without it, compact and with sorted names. A snapshot without a manifest is
incomplete.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafscale.errors import CorruptData
from kafscale.paths import BackupId
from kafscale.records.checksum import crc32c

FORMAT = 1
_MAGIC = b"KFSB"
_HEAD = struct.Struct(">4sHI")
_LENGTH = struct.Struct(">I")


class CorruptBackup(CorruptData):
    """The bytes are not a valid part or manifest, or their format is not known to this release."""


class Item(NamedTuple):
    """A key, without the namespace's root, and its value."""

    key: str
    value: bytes


class Part(NamedTuple):
    """A part in the manifest. ``size`` in bytes and ``crc`` (CRC-32C) are those of the whole object."""

    keys: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a snapshot. ``version`` is that of the release that created it."""

    cluster_id: str
    namespace: str
    backup: BackupId
    version: str
    parts: tuple[Part, ...]

    @property
    def keys(self) -> int:
        return sum(part.keys for part in self.parts)

    @property
    def size(self) -> int:
        """The total size of all parts in bytes."""
        return sum(part.size for part in self.parts)

    def encode(self) -> bytes:
        """Return the stored form."""
        fields = {
            "format": FORMAT,
            "cluster_id": self.cluster_id,
            "namespace": self.namespace,
            "created_ms": self.backup.created_ms,
            "revision": self.backup.revision,
            "version": self.version,
            "parts": [{"keys": part.keys, "bytes": part.size, "crc": f"{part.crc:08x}"} for part in self.parts],
        }
        return (json.dumps({**fields, "crc": _checksum(fields)}, indent=2) + "\n").encode()


def encode_part(items: Sequence[Item]) -> bytes:
    pieces = [_HEAD.pack(_MAGIC, FORMAT, len(items))]
    for item in items:
        key = item.key.encode()
        pieces += [_LENGTH.pack(len(key)), key, _LENGTH.pack(len(item.value)), item.value]
    body = b"".join(pieces)
    return body + _LENGTH.pack(crc32c(body))


def parse_part(data: bytes, part: Part) -> Iterator[Item]:
    """Return the keys of a part that the manifest describes as ``part``. Raises CorruptBackup before yielding any."""
    if len(data) != part.size or crc32c(data) != part.crc:
        raise CorruptBackup(f"{len(data)} bytes with CRC {crc32c(data):08x}, expected {part.size} with {part.crc:08x}")
    try:
        magic, version, count = _HEAD.unpack_from(data)
        if magic != _MAGIC or version != FORMAT or count != part.keys:
            raise CorruptBackup(
                f"{count} keys of {magic!r}, format {version}; expected {part.keys} keys of format {FORMAT}"
            )
        items, position = [], _HEAD.size
        for _ in range(count):
            key, position = _text(data, position)
            value, position = _text(data, position)
            items.append(Item(key.decode(), value))
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBackup(f"keys are truncated: {error}") from error
    if position + _LENGTH.size != len(data) or _LENGTH.unpack_from(data, position)[0] != crc32c(data[:position]):
        raise CorruptBackup("the checksum of the keys is wrong")
    return iter(items)


def parse_manifest(data: bytes) -> Manifest:
    """Parse a manifest. Raises CorruptBackup."""
    try:
        fields = json.loads(data)
        crc = fields.pop("crc")
        if fields["format"] != FORMAT:
            raise CorruptBackup(f"the manifest has format {fields['format']!r}, this release reads {FORMAT}")
        if crc != _checksum(fields):
            raise CorruptBackup("the manifest's checksum is wrong")
        parts = tuple(
            Part(_number(part["keys"]), _number(part["bytes"]), int(part["crc"], 16)) for part in fields["parts"]
        )
        backup = BackupId(_number(fields["created_ms"]), _number(fields["revision"]))
        cluster_id, namespace, version = (_shown(fields[name]) for name in ("cluster_id", "namespace", "version"))
        return Manifest(cluster_id, namespace, backup, version, parts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptBackup(f"invalid manifest: {error!r}") from error


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise CorruptBackup("the manifest has a value that is not a number from 0 on")
    return value


def _shown(value: Any) -> str:
    """Return a text that is shown to users. Others must not be able to control their terminals with it."""
    if not isinstance(value, str) or not value.isprintable():
        raise CorruptBackup("the manifest has a value that is not printable text")
    return value


def _text(data: bytes, position: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    end = position + _LENGTH.size + length
    if end > len(data):
        raise CorruptBackup("keys are truncated")
    return data[position + _LENGTH.size : end], end


def _checksum(fields: Mapping[str, Any]) -> str:
    return f"{crc32c(json.dumps(fields, separators=(',', ':'), sort_keys=True).encode()):08x}"
