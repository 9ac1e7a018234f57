"""Topic objects: copies of the topics' metadata in the bucket, from which topics can be restored without etcd.

JSON, ``{namespace}/~topics/{topic}.json``::

    {
      "format": 1,
      "name": "orders",
      "id": "00000000-0000-4000-8000-000000000001",
      "partitions": 3,
      "configs": {"retention.ms": "3600000"},
      "epoch_floor": 0,
      "created_ms": 1700000000000,
      "log_starts": [0, 1200, 0],
      "metadata_revision": 17
    }

``configs`` holds the configs that were set, without defaults; ``log_starts`` one offset per partition.
``metadata_revision`` is that of the metadata store when all of this was read: objects with a lower one are older.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard
from uuid import UUID

from kafscale import paths
from kafscale.errors import CorruptData

FORMAT = 1
_MOST_PARTITIONS = 1_000_000
_SURROGATE = re.compile("[\ud800-\udfff]")
"""JSON can escape half of a character, which no other format can."""


class CorruptTopicObject(CorruptData):
    """Bytes that are not a topic object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicObject:
    """A topic object. ``id`` is 16 bytes in RFC 4122 order."""

    name: str
    id: bytes
    configs: Mapping[str, str]
    epoch_floor: int
    created_ms: int
    log_starts: tuple[int, ...]
    metadata_revision: int

    @property
    def partitions(self) -> int:
        return len(self.log_starts)

    def same_as(self, other: "TopicObject") -> bool:
        """Return whether both are equal except for their revisions."""
        return replace(self, metadata_revision=0) == replace(other, metadata_revision=0)

    def encode(self) -> bytes:
        """Return the stored form."""
        fields = {
            "format": FORMAT,
            "name": self.name,
            "id": str(UUID(bytes=self.id)),
            "partitions": self.partitions,
            "configs": dict(sorted(self.configs.items())),
            "epoch_floor": self.epoch_floor,
            "created_ms": self.created_ms,
            "log_starts": list(self.log_starts),
            "metadata_revision": self.metadata_revision,
        }
        return (json.dumps(fields, indent=2, ensure_ascii=False) + "\n").encode()


def parse_topic_object(data: bytes) -> TopicObject:
    """Parse a topic object. Raises CorruptTopicObject, which describes the fault."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptTopicObject(f"not JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise CorruptTopicObject(f"not a topic object of format {FORMAT}")
    log_starts = _field(fields, "log_starts", list)
    if not 1 <= len(log_starts) <= _MOST_PARTITIONS or _number(fields, "partitions") != len(log_starts):
        raise CorruptTopicObject(f"{fields['partitions']} partitions, but {len(log_starts)} log starts")
    if not all(_is_number(start) for start in log_starts):
        raise CorruptTopicObject("a log start is not an offset")
    configs = _field(fields, "configs", dict)
    if not all(isinstance(value, str) for value in configs.values()):
        raise CorruptTopicObject("the value of a config is not a string")
    if any(_SURROGATE.search(text) for item in configs.items() for text in item):
        raise CorruptTopicObject("a config is not Unicode text")
    name = _field(fields, "name", str)
    if not paths.is_topic_name(name):
        raise CorruptTopicObject(f"{name!r} is not a valid topic name")
    try:
        topic_id = UUID(_field(fields, "id", str)).bytes
    except ValueError as error:
        raise CorruptTopicObject(f"{fields['id']!r} is not a valid id") from error
    return TopicObject(
        name=name,
        id=topic_id,
        configs=configs,
        epoch_floor=_number(fields, "epoch_floor"),
        created_ms=_number(fields, "created_ms"),
        log_starts=tuple(log_starts),
        metadata_revision=_number(fields, "metadata_revision"),
    )


def _field(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    found = fields.get(name)
    if not isinstance(found, kind):
        raise CorruptTopicObject(f"{name} is missing or not a {kind.__name__}")
    return found


def _number(fields: Mapping[str, Any], name: str) -> int:
    found = fields.get(name)
    if not _is_number(found):
        raise CorruptTopicObject(f"{name} is missing or not a number")
    return found


def _is_number(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**63
