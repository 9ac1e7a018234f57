"""Classifies the objects of a whole bucket by key."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from kafscale import paths
from kafscale.paths import CatalogPageKey, SegmentKey, parse_catalog_page_key, parse_segment_key
from kafscale.rewritten.keys import RewrittenKey, RootKey, parse_rewritten_key
from kafscale_spark.audit.bucket import Listed
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.metadata import Logs

_LONG_AGO_HOURS = 48
"""The age from which stages are leftovers: twice the default expiry of unused stages."""
_HOUR_MS = 3_600_000
_STRANGE = "not the name of a KafScale object"
_NO_PARTITION = "no live topic has this partition"


@dataclass(slots=True)
class Listing:
    """The keys of a bucket by kind: segments, indexes, catalog pages, objects of intakes, stages and ``others``.

    ``rewritten`` has rewritten objects and roots, ``rewritten_indexes`` the indexes of these objects. ``stages`` has
    the time of staging by key, in ms since 1970. ``objects`` and ``sizes`` are totals by kind.
    """

    namespace: str
    segments: dict[str, SegmentKey] = field(default_factory=dict)
    indexes: dict[str, SegmentKey] = field(default_factory=dict)
    pages: list[str] = field(default_factory=list)
    rewritten: dict[str, RewrittenKey | RootKey] = field(default_factory=dict)
    rewritten_indexes: dict[str, RewrittenKey] = field(default_factory=dict)
    intakes: list[str] = field(default_factory=list)
    stages: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    objects: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, namespace: str, listed: Iterable[Listed]) -> "Listing":
        listing = cls(namespace)
        for found in listed:
            kind = listing._add(found.key)
            listing.objects[kind] += 1
            listing.sizes[kind] += found.size
        return listing

    def leftovers(self, logs: Logs, now_ms: int) -> list[Finding]:
        """Return findings of old stages, of unknown objects, and of objects of unknown topics or partitions.

        Checks that need an object's content are done elsewhere.
        """
        findings = [*self._leftover_indexes(), *self._of_unknown_partitions(logs)]
        for key, staged_ms in self.stages.items():
            hours = (now_ms - staged_ms) // _HOUR_MS
            if hours >= _LONG_AGO_HOURS:
                findings.append(_orphan(key, f"staged {hours} hours ago"))
        topics = {topic for topic, _ in logs}
        for key in self.others:
            detail = self._why_orphan(key, logs, topics)
            if detail:
                findings.append(_orphan(key, detail))
        return findings

    def _of_unknown_partitions(self, logs: Logs) -> Iterator[Finding]:
        for key, name in self.segments.items():
            if (name.topic, name.partition) not in logs:
                yield _of(key, name, _NO_PARTITION)
        for key in self.pages:
            page = parse_catalog_page_key(key)
            if page is not None and (page.topic, page.partition) not in logs:
                yield _of(key, page, _NO_PARTITION)
        for key, part in self.rewritten.items():
            if (part.topic, part.partition) not in logs:
                yield Finding(Kind.ORPHAN, part.topic, part.partition, -1, key, _NO_PARTITION)

    def _leftover_indexes(self) -> Iterator[Finding]:
        for key, name in self.indexes.items():
            segment = str(SegmentKey(name.namespace, name.topic, name.partition, name.base_offset))
            if segment not in self.segments:
                yield _of(key, name, "an index without its segment")
        for key, index in self.rewritten_indexes.items():
            if str(replace(index, kind="kfs")) not in self.rewritten:
                yield _of(key, index, "an index without its rewritten object")

    def _add(self, key: str) -> str:
        """Add a key and return its kind."""
        name = parse_segment_key(key)
        if name is not None and name.namespace == self.namespace:
            of_kind, kind = (self.segments, "segments") if name.kind == "kfs" else (self.indexes, "indexes")
            of_kind[key] = name
            return kind
        page = parse_catalog_page_key(key)
        if page is not None and page.namespace == self.namespace:
            self.pages.append(key)
            return "catalog pages"
        rewritten = parse_rewritten_key(key)
        if rewritten is not None and rewritten.namespace == self.namespace:
            return self._add_rewritten(key, rewritten)
        intake = paths.parse_intake_key(key)
        if intake is not None and intake.namespace == self.namespace:
            self.intakes.append(key)
            return "intake objects"
        stage = paths.parse_stage_key(key)
        if stage is not None and stage.namespace == self.namespace:
            self.stages[key] = stage.created_ms
            return "stages"
        if paths.is_etcd_snapshot_key(self.namespace, key):
            return "etcd snapshots"
        # Only a namespace can precede a name with ~ or a complete key.
        if name or "/~" in key.removeprefix(f"{self.namespace}/"):
            return "of other namespaces"
        self.others.append(key)
        if key == paths.cluster_mark_key(self.namespace):
            return "cluster mark"
        if key.startswith(paths.topic_objects_prefix(self.namespace)):
            return "topic objects"
        return "producers" if key.startswith(f"{self.namespace}/~producers/") else "others"

    def _add_rewritten(self, key: str, name: RewrittenKey | RootKey) -> str:
        if isinstance(name, RewrittenKey) and name.kind == "index":
            self.rewritten_indexes[key] = name
            return "indexes"
        self.rewritten[key] = name
        return "roots" if isinstance(name, RootKey) else "rewritten"

    def _why_orphan(self, key: str, logs: Logs, topics: set[str]) -> str:
        """Return why an object of ``others`` is not needed, or an empty string if it is."""
        if key == paths.cluster_mark_key(self.namespace):
            return ""
        if key.startswith(paths.probe_key(self.namespace, "")):
            return "left by a probe of the object store at startup"
        topic = key.removeprefix(paths.topic_objects_prefix(self.namespace)).removesuffix(".json")
        if key == paths.topic_object_key(self.namespace, topic) and paths.is_topic_name(topic):
            return "" if topic in topics else "no such topic"
        if paths.producer_snapshot_epoch(key) >= 0:
            log = paths.parse_partition(f"{self.namespace}/~producers/", key.rpartition("/")[0])
            return "" if log in logs else _NO_PARTITION
        return _STRANGE


def _of(key: str, name: SegmentKey | CatalogPageKey | RewrittenKey, detail: str) -> Finding:
    return Finding(Kind.ORPHAN, name.topic, name.partition, name.base_offset, key, detail)


def _orphan(key: str, detail: str) -> Finding:
    return Finding(Kind.ORPHAN, "", -1, -1, key, detail)
