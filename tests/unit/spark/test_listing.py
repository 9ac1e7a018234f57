"""Objects of a bucket are classified by key, and leftover ones are found."""

import pytest

from kafscale import paths
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale_spark.audit.bucket import Listed
from kafscale_spark.audit.chain import Bounds
from kafscale_spark.audit.findings import Kind
from kafscale_spark.audit.listing import Listing

NOW = 1_700_000_000_000
HOUR = 3_600_000
LOGS = {("orders", 0): Bounds(0)}


def _stage(age_ms: int, *, manifest: bool = False) -> str:
    return str(paths.StageKey("default", "a sink", 7, NOW - age_ms, "run-1", manifest))


def _listing(*keys: str) -> Listing:
    return Listing.of("default", [Listed(key, 10) for key in keys])


def _rewritten(topic: str = "orders", *, index: bool = False, namespace: str = "default") -> str:
    key = RewrittenKey(namespace, topic, 0, 5, 9, 3, 1)
    return str(key.index if index else key)


NEEDED = {
    paths.segment_key("default", "orders", 0, 5): "segments",
    paths.index_key("default", "orders", 0, 5): "indexes",
    paths.catalog_page_key("default", "orders", 0, 5, 1): "catalog pages",
    paths.topic_object_key("default", "orders"): "topic objects",
    paths.producer_snapshot_key("default", "orders", 0, 5, 1): "producers",
    _rewritten(): "rewritten",
    _rewritten(index=True): "indexes",
    str(RootKey("default", "orders", 0, 1, 3, 1)): "roots",
    paths.cluster_mark_key("default"): "cluster mark",
    _stage(HOUR): "stages",
    _stage(HOUR, manifest=True): "stages",
    paths.intake_key("default", "run-1", 7): "intake objects",
    str(paths.IntakeKey("default", "run-1", None)): "intake objects",
    paths.etcd_snapshot_part_key("default", "20261122T191700Z", 0): "etcd snapshots",
    paths.etcd_snapshot_manifest_key("default", "20261122T191700Z"): "etcd snapshots",
    # A cluster whose namespace is below this one's.
    paths.segment_key("default/other", "orders", 0, 5): "of other namespaces",
    paths.intake_key("default/other", "run-1", 7): "of other namespaces",
    _rewritten(namespace="default/other"): "of other namespaces",
    paths.cluster_mark_key("default/other"): "of other namespaces",
    paths.etcd_snapshot_manifest_key("default/other", "20261122T191700Z"): "of other namespaces",
}


def test_needed_objects_are_counted() -> None:
    listing = _listing(*NEEDED)
    assert listing.leftovers(LOGS, NOW) == []
    counted: dict[str, int] = {}
    for kind in NEEDED.values():
        counted[kind] = counted.get(kind, 0) + 1
    assert dict(listing.objects) == counted
    assert dict(listing.sizes) == {kind: 10 * count for kind, count in counted.items()}


@pytest.mark.parametrize(
    ("key", "detail"),
    [
        (paths.segment_key("default", "gone", 0, 5), "no live topic has this partition"),
        (paths.segment_key("default", "orders", 1, 5), "no live topic has this partition"),
        (paths.index_key("default", "orders", 0, 5), "an index without its segment"),
        (paths.catalog_page_key("default", "gone", 0, 5, 1), "no live topic has this partition"),
        (_rewritten("gone"), "no live topic has this partition"),
        (str(RootKey("default", "gone", 0, 1, 3, 1)), "no live topic has this partition"),
        (_rewritten(index=True), "an index without its rewritten object"),
        ("default/~rewritten/orders/0/roots/1-1-1", "not the name of a KafScale object"),
        (paths.topic_object_key("default", "gone"), "no such topic"),
        (paths.producer_snapshot_key("default", "gone", 0, 5, 1), "no live topic has this partition"),
        (paths.probe_key("default", "x"), "left by a probe of the object store at startup"),
        (_stage(50 * HOUR), "staged 50 hours ago"),
        (_stage(50 * HOUR, manifest=True), "staged 50 hours ago"),
        ("default/junk.bin", "not the name of a KafScale object"),
        ("default/orders/0/segment-abc.kfs", "not the name of a KafScale object"),
        ("default/orders/0/segment-00000000000000000005.kfs.old", "not the name of a KafScale object"),
        ("default/~stages/x/0/1", "not the name of a KafScale object"),
        ("default/~catalog/orders/0/5", "not the name of a KafScale object"),
        ("default/~topics/orders", "not the name of a KafScale object"),
        ("default/~producers/orders/0/1", "not the name of a KafScale object"),
        ("default/~etcd/20261122T191700Z/x", "not the name of a KafScale object"),
        ("default/~other", "not the name of a KafScale object"),
    ],
)
def test_unneeded_objects_are_leftovers(key: str, detail: str) -> None:
    [finding] = _listing(key).leftovers(LOGS, NOW)
    assert (finding.kind, finding.key) == (Kind.ORPHAN, key)
    assert finding.detail.startswith(detail)
