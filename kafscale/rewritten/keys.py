"""The object keys of rewritten objects, their indexes, and roots. `kafscale.paths` has all other keys.

No key is used for two objects: it has the epoch of the owner for which the object was written, and the number of the
owner's attempt.
"""

import re
from dataclasses import dataclass, replace

from kafscale.paths import Kind, is_namespace, is_topic_name
from kafscale.v1.rewritten_pb2 import RewrittenEntry

_KEY = re.compile(
    r"(?P<namespace>[^/]+(?:/[^/]+)*)/~rewritten/(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>0|[1-9][0-9]{0,9})/"
    r"(?:(?P<base>[0-9]{20})-(?P<next>[0-9]{20})|roots/(?P<number>[0-9]{20}))"
    r"-(?P<epoch>[1-9][0-9]{0,9})-(?P<attempt>[1-9][0-9]{0,9})(?P<suffix>\.kfs|\.index|)"
)


@dataclass(frozen=True, slots=True)
class RewrittenKey:
    """The fields in the key of an object that has the log from ``base_offset`` up to ``next_offset``, or of its index.

    Attempts are counted from 1.
    """

    namespace: str
    topic: str
    partition: int
    base_offset: int
    next_offset: int
    epoch: int
    attempt: int
    kind: Kind = "kfs"

    @classmethod
    def of(cls, entry: RewrittenEntry, namespace: str, topic: str, partition: int) -> "RewrittenKey":
        """Return the key of the object that an entry of a root describes."""
        return cls(namespace, topic, partition, entry.base_offset, entry.next_offset, entry.epoch, entry.attempt)

    @property
    def index(self) -> "RewrittenKey":
        """The key of the object's index."""
        return replace(self, kind="index")

    def __str__(self) -> str:
        name = f"{self.base_offset:020d}-{self.next_offset:020d}-{self.epoch}-{self.attempt}.{self.kind}"
        return f"{rewritten_prefix(self.namespace, self.topic, self.partition)}{name}"


@dataclass(frozen=True, slots=True)
class RootKey:
    """The fields in the key of a root. Numbers and attempts are counted from 1."""

    namespace: str
    topic: str
    partition: int
    number: int
    epoch: int
    attempt: int

    def __str__(self) -> str:
        prefix = roots_prefix(self.namespace, self.topic, self.partition)
        return f"{prefix}{self.number:020d}-{self.epoch}-{self.attempt}"


def all_rewritten_prefix(namespace: str) -> str:
    """The prefix of the rewritten objects and roots of all topics."""
    return f"{namespace}/~rewritten/"


def rewritten_prefix(namespace: str, topic: str, partition: int) -> str:
    """The prefix of a partition's rewritten objects and of its roots."""
    return f"{all_rewritten_prefix(namespace)}{topic}/{partition}/"


def roots_prefix(namespace: str, topic: str, partition: int) -> str:
    return f"{rewritten_prefix(namespace, topic, partition)}roots/"


def parse_rewritten_key(key: str) -> RewrittenKey | RootKey | None:
    """Parse ``key``; None if it is not the key of a rewritten object, its index, or a root."""
    found = _KEY.fullmatch(key)
    if found is None or not is_topic_name(found["topic"]) or not is_namespace(found["namespace"]):
        return None
    partition, epoch, attempt = int(found["partition"]), int(found["epoch"]), int(found["attempt"])
    if partition >= 2**31 or epoch >= 2**31 or attempt >= 2**32:
        return None
    if found["number"] is not None:
        number = int(found["number"])
        if found["suffix"] or not 1 <= number < 2**63:
            return None
        return RootKey(found["namespace"], found["topic"], partition, number, epoch, attempt)
    base_offset, next_offset = int(found["base"]), int(found["next"])
    if not found["suffix"] or not base_offset < next_offset < 2**63:
        return None
    kind: Kind = "kfs" if found["suffix"] == ".kfs" else "index"
    return RewrittenKey(found["namespace"], found["topic"], partition, base_offset, next_offset, epoch, attempt, kind)
