import pytest

from services.operator.topics.desired import Desired
from services.operator.topics.plan import CANNOT_SHRINK, INVALID_CONFIG, Configure, Create, Grow, Seen, described, plan
from services.operator.topics.retention import retention_ms


def desired(partitions: int | None = None, **configs: str) -> Desired:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return Desired("orders", "main", partitions, named, deletes=False)


def seen(partitions: int = 3, **configs: str) -> Seen:
    return Seen("id", partitions, {name.replace("_", "."): value for name, value in configs.items()})


def test_a_missing_topic_is_created_as_specified() -> None:
    found = plan(desired(6, retention_ms="1000"), None, ())
    assert found.actions == (Create(6, {"retention.ms": "1000"}),)
    assert found.managed == ("retention.ms",)
    assert plan(desired(), None, ()).actions == (Create(0, {}),)


def test_nothing_is_done_to_a_topic_that_matches_its_spec() -> None:
    assert plan(desired(3, retention_ms="1000"), seen(3, retention_ms="1000"), ("retention.ms",)).actions == ()
    # The stored value is equivalent but has another spelling.
    assert plan(desired(compression_type="none"), seen(compression_type="uncompressed"), ()).actions == ()


def test_a_compacted_topic_is_created_as_specified() -> None:
    found = plan(desired(3, cleanup_policy="compact,delete"), seen(3), ())
    assert found.actions == (Configure({"cleanup.policy": "compact,delete"}, ()),)
    assert found.complaint is None


def test_a_topic_grows_and_never_shrinks() -> None:
    assert plan(desired(5), seen(3), ()).actions == (Grow(3, 5),)
    refused = plan(desired(2, retention_ms="5"), seen(3), ())
    assert refused.complaint is not None
    assert refused.complaint.reason == CANNOT_SHRINK
    assert "has 3 partitions, but the resource has 2" in refused.complaint.message
    assert refused.actions == (Configure({"retention.ms": "5"}, ()),)
    assert plan(desired(None), seen(3), ()) == plan(desired(3), seen(3), ())


def test_a_config_that_the_resource_never_named_stays() -> None:
    found = plan(desired(flush_ms="50"), seen(retention_ms="-1", flush_ms="100"), ())
    assert found.actions == (Configure({"flush.ms": "50"}, ()),)


def test_a_config_that_the_resource_no_longer_names_is_unset() -> None:
    found = plan(desired(), seen(retention_ms="5"), ("flush.ms", "retention.ms"))
    assert found.actions == (Configure({}, ("retention.ms",)),)
    assert found.managed == ("flush.ms", "retention.ms")


def test_a_config_that_kafka_would_refuse_is_reported_and_nothing_is_done() -> None:
    for configs in ({"cleanup_policy": "compress"}, {"retention_ms": "soon"}, {"no_such": "1"}):
        found = plan(desired(9, **configs), seen(), ("flush.ms",))
        assert found.actions == ()
        assert found.managed == ("flush.ms",)
        assert found.complaint is not None
        assert found.complaint.reason == INVALID_CONFIG


def test_actions_are_described_in_words() -> None:
    assert described(Create(1, {})) == "created the topic with 1 partition"
    assert (
        described(Create(0, {"b": "2", "a": "1"}))
        == "created the topic with the gateway's default number of partitions and a=1, b=2"
    )
    assert described(Grow(3, 6)) == "increased the partitions from 3 to 6"
    assert described(Configure({"a": "1"}, ("b",))) == "set a=1; unset b"


def test_a_resource_is_read_with_defaults() -> None:
    spec = {"clusterRef": {"name": "main"}, "retention": "24h", "compression": "lz4", "config": {"flush.ms": "5"}}
    resource = {"metadata": {"name": "orders"}, "spec": spec}
    configs = {"retention.ms": "86400000", "compression.type": "lz4", "flush.ms": "5"}
    assert Desired.of(resource, ["main"]) == Desired("orders", "main", None, configs, deletes=False)
    other = {"topicName": "Orders_1", "partitions": 2, "deletionPolicy": "Delete"}
    named = Desired.of({"metadata": {"name": "orders"}, "spec": {"clusterRef": {"name": "main"}, **other}}, [])
    assert named == Desired("Orders_1", "main", 2, {}, deletes=True)


@pytest.mark.parametrize(
    ("named", "bound", "clusters", "expected"),
    [
        ("", "", ["only"], "only"),
        ("", "", [], ""),
        ("", "", ["a", "b"], ""),
        ("", "a", ["a", "b"], "a"),
        ("", "gone", ["a"], "gone"),
        ("a", "", ["b"], "a"),
    ],
)
def test_a_topic_without_a_cluster_reference_belongs_to_the_only_or_its_former_cluster(
    named: str, bound: str, clusters: list[str], expected: str
) -> None:
    resource = {
        "metadata": {"name": "logs"},
        "spec": {"clusterRef": {"name": named}} if named else {},
        "status": {"cluster": bound} if bound else {},
    }
    assert Desired.of(resource, clusters).cluster == expected


@pytest.mark.parametrize(
    ("text", "ms"),
    [("24h", 86_400_000), ("7d", 604_800_000), ("1h30m", 5_400_000), ("2w", 1_209_600_000), ("5ms", 5), ("9s", 9_000)],
)
def test_retention_accepts_common_units(text: str, ms: int) -> None:
    assert retention_ms(text) == ms


def test_retention_may_be_unlimited_and_refuses_other_words() -> None:
    assert retention_ms("forever") == -1
    assert retention_ms("999999999w" * 6) < 2**63
    for text in (
        "",
        "24",
        "h",
        "24 h",
        "0h",
        "-1",
        "1.5h",
        "24H",
        "24h\n",
        "1y",
        "1h forever",
        "9999999999h",
        "1h" * 33,
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - the text alone
            retention_ms(text)
