"""Keys as the storage format names them, and nothing else taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale import paths
from kafscale.objects.keys import check_key
from kafscale.paths import SegmentKey, parse_segment_key

namespaces = st.lists(st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True), min_size=1, max_size=3).map("/".join)
topics = st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True)


def test_keys_are_those_of_the_storage_format() -> None:
    assert paths.segment_key("production", "orders", 0, 0) == "production/orders/0/segment-00000000000000000000.kfs"
    assert paths.index_key("a/b", "orders", 12, 50000) == "a/b/orders/12/segment-00000000000000050000.index"
    assert paths.partition_prefix("production", "orders", 3) == "production/orders/3/"


@given(
    namespace=namespaces.filter(paths.is_namespace),
    topic=topics.filter(paths.is_topic_name),
    partition=st.integers(0, 2**31 - 1),
    base_offset=st.integers(0, 2**63 - 1),
    kind=st.sampled_from(["kfs", "index"]),
)
def test_what_is_built_is_parsed(
    namespace: str, topic: str, partition: int, base_offset: int, kind: paths.Kind
) -> None:
    key = SegmentKey(namespace, topic, partition, base_offset, kind)

    assert parse_segment_key(str(key)) == key
    assert str(key).startswith(paths.partition_prefix(namespace, topic, partition))


@given(first=st.integers(0, 2**63 - 1), second=st.integers(0, 2**63 - 1))
def test_keys_sort_as_their_offsets_do(first: int, second: int) -> None:
    keys = [paths.segment_key("n", "t", 0, offset) for offset in (first, second)]

    assert (keys[0] < keys[1]) == (first < second)


@pytest.mark.parametrize(
    "key",
    [
        "orders/0/segment-00000000000000000000.kfs",
        "n/orders/0/segment-0000000000000000000.kfs",
        "n/orders/0/segment-000000000000000000000.kfs",
        "n/orders/0/segment-0000000000000000000x.kfs",
        "n/orders/0/segment-00000000000000000000.kfs.tmp",
        "n/orders/0/segment-00000000000000000000.kfs\n",
        "n/orders/0/segment-00000000000000000000.KFS",
        "n/orders/00/segment-00000000000000000000.kfs",
        "n/orders/-1/segment-00000000000000000000.kfs",
        "n/orders/٣/segment-00000000000000000000.kfs",
        "n/or~ders/0/segment-00000000000000000000.kfs",
        "n/../0/segment-00000000000000000000.kfs",
        "n/./0/segment-00000000000000000000.kfs",
        f"n/{'t' * 250}/0/segment-00000000000000000000.kfs",
        "/n/orders/0/segment-00000000000000000000.kfs",
        "n//orders/0/segment-00000000000000000000.kfs",
        "n/~cluster",
        "",
    ],
)
def test_other_keys_are_no_segments(key: str) -> None:
    assert parse_segment_key(key) is None


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("n/orders/0/segment-09223372036854775808.kfs", "an offset has 63 bits"),
        ("n/orders/2147483648/segment-00000000000000000000.kfs", "a partition has 31 bits"),
        ("n/~catalog/orders/0/segment-00000000000000000000.kfs", "~ begins what is not a topic"),
        ("n/../orders/0/segment-00000000000000000000.kfs", "no namespace"),
    ],
)
def test_keys_that_nothing_can_have_built_are_no_segments(key: str, why: str) -> None:
    assert parse_segment_key(key) is None, why


@given(text=st.text(max_size=60))
def test_whatever_is_parsed_builds_the_same_key_again(text: str) -> None:
    key = f"n/t/0/{text}"
    parsed = parse_segment_key(key)

    assert parsed is None or str(parsed) == key


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "..a", "...", "t" * 249])
def test_topic_names(name: str) -> None:
    assert paths.is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a~", "ä", "a\n", "t" * 250])
def test_names_that_no_topic_can_have(name: str) -> None:
    assert not paths.is_topic_name(name)


def test_namespaces() -> None:
    assert paths.is_namespace("default")
    assert paths.is_namespace("team/prod-1")
    for name in ("", "/", "a/", "/a", "a//b", ".", "a/..", "~a", "a\n"):
        assert not paths.is_namespace(name)


def test_metadata_keys_of_a_namespace_lie_below_its_root_and_apart() -> None:
    root = paths.metadata_root("n")
    keys = [
        paths.cluster_key("n"),
        paths.topic_key("n", "t"),
        paths.partition_state_key("n", "t", 0),
        paths.epoch_history_key("n", "t", 0),
        paths.member_key("n", "storage", "run"),
    ]

    assert len(set(keys)) == len(keys)
    assert all(key.startswith(root) for key in keys)
    assert paths.topic_key("n", "t").startswith(paths.topics_prefix("n"))
    assert paths.member_key("n", "storage", "run").startswith(paths.members_prefix("n", "storage"))


@given(
    namespace=namespaces.filter(paths.is_namespace),
    topic=topics.filter(paths.is_topic_name),
    partition=st.integers(0, 2**31 - 1),
    base_offset=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**31 - 1),
)
def test_catalog_pages_are_named_and_parsed(
    namespace: str, topic: str, partition: int, base_offset: int, epoch: int
) -> None:
    page = paths.catalog_page_key(namespace, topic, partition, base_offset, epoch)
    assert page.startswith(paths.catalog_prefix(namespace, topic, partition))
    assert paths.parse_catalog_page_key(page) == paths.CatalogPageKey(namespace, topic, partition, base_offset, epoch)
    assert parse_segment_key(page) is None


@pytest.mark.parametrize(
    "key",
    [
        "n/~catalog/orders/0/00000000000000000000",
        "n/~catalog/orders/0/00000000000000000000-",
        "n/~catalog/orders/0/00000000000000000000-01",
        "n/~catalog/orders/0/00000000000000000000-2147483648",
        "n/~catalog/orders/0/09223372036854775808-1",
        "n/~catalog/orders/2147483648/00000000000000000000-1",
        "n/~catalog/or~ders/0/00000000000000000000-1",
        "n/~catalog/../0/00000000000000000000-1",
        "n/../~catalog/orders/0/00000000000000000000-1",
        "n/~producers/orders/0/00000000000000000000-1",
    ],
)
def test_other_keys_are_no_catalog_pages(key: str) -> None:
    assert paths.parse_catalog_page_key(key) is None


def test_the_epoch_of_a_producer_snapshot_is_in_its_key() -> None:
    key = paths.producer_snapshot_key("a/b", "orders", 3, 500, 12)
    assert paths.producer_snapshot_epoch(key) == 12
    for other in (f"{key}x", f"{key}-1", key.replace("~producers", "~catalog"), key.rpartition("-")[0]):
        assert paths.producer_snapshot_epoch(other) == -1


@given(st.text(), st.text(), st.integers(0, 2**31 - 1), st.integers(0, 2**62))
def test_keys_of_any_groups_and_members_are_parsed(group: str, member: str, generation: int, revision: int) -> None:
    keys = paths.GroupKeys("a/b", group)
    version = paths.group_version(generation, revision)
    made = [
        keys.header,
        keys.member(member, version),
        keys.assignments(version, generation),
        keys.offset("a.topic", generation),
    ]
    assert {paths.parse_group_key("a/b", key) for key in made} == {group}
    assert all(key.startswith(keys.prefix) and key.isascii() for key in made)
    assert [keys.parse_member(key) for key in made] == [None, (member, version), None, None]
    assert [keys.parse_assignments(key) for key in made] == [None, None, (version, generation), None]
    assert [keys.parse_offset(key) for key in made] == [None, None, None, ("a.topic", generation)]


def test_groups_lie_apart_and_their_shards_are_stable() -> None:
    assert paths.GroupKeys("ns", "g").header == "kafscale/ns/groups/54/g/header"
    assert paths.GroupKeys("ns", "g/x").prefix == "kafscale/ns/groups/20/g%2Fx/"
    assert paths.group_shard_key("ns", 7) == "kafscale/ns/group-shards/7"
    assert paths.parse_group_shard_key("ns", "kafscale/ns/group-shards/63") == 63
    for other in ("kafscale/ns/group-shards/64", "kafscale/ns/group-shards/07", "kafscale/ns/groups/7"):
        assert paths.parse_group_shard_key("ns", other) is None
    for other in ("kafscale/ns/groups/54/g", "kafscale/ns/groups/53/g/header", "kafscale/ns/topics/g", "g/h/i"):
        assert paths.parse_group_key("ns", other) is None


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.integers(0, 2**63 - 1),
    st.integers(0, 10**13 - 1),
    st.booleans(),
)
def test_keys_of_what_any_sink_stages_are_parsed(sink: str, epoch: int, created_ms: int, manifest: bool) -> None:
    made = paths.StageKey("a/b", sink, epoch, created_ms, "0f-1", manifest)
    assert paths.is_sink_name(sink)
    assert paths.parse_stage_key(str(made)) == made
    check_key(str(made))
    assert str(made).isascii()
    assert parse_segment_key(str(made)) is None


def test_sinks_have_keys_of_their_own() -> None:
    assert str(paths.StageKey("n", "..", 7, 1, "t")) == "n/~stages/%2E%2E/00000000000000000007/0000000000001-t"
    assert paths.sink_key("n", "a/b") == "kafscale/n/sinks/a%2Fb"
    assert not any(map(paths.is_sink_name, ("", "x" * 201, "/" * 86, "é" * 43)))
    for other in (
        "n/~stages/s/00000000000000000007/0000000000001-t.other",
        "n/~stages/s/00000000000000000007/1-t",
        "n/~stages/s/7/0000000000001-t",
        "n/~stages/%73/00000000000000000007/0000000000001-t",
        "n/~stages/s/09223372036854775808/0000000000001-t",
        "n/stages/s/00000000000000000007/0000000000001-t",
    ):
        assert paths.parse_stage_key(other) is None


def test_snapshots_of_the_metadata_have_keys_of_their_own_in_the_order_of_time() -> None:
    backup = paths.BackupId(1_700_000_000_000, 17)
    part, manifest = paths.BackupKey("a/b", backup, 3), paths.BackupKey("a/b", backup)
    assert str(part) == "a/b/~backups/1700000000000-17/00000003"
    assert str(manifest) == "a/b/~backups/1700000000000-17/manifest"
    for key in (part, manifest):
        assert paths.parse_backup_key(str(key)) == key
        check_key(str(key))
        assert parse_segment_key(str(key)) is None
    assert paths.parse_backup_id(str(backup)) == backup
    assert str(part) < str(manifest) < str(paths.BackupKey("a/b", paths.BackupId(1_700_000_000_001, 2), 0))
    for other in ("", "1700000000000", "1700000000000-0", "1700000000000-17/manifest", "x", "../x"):
        assert paths.parse_backup_id(other) is None
