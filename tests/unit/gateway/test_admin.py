"""Admin requests about processes, topics, partitions and configs."""

import base64

import grpc
import pytest

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import no_answer
from kafscale.metadata.topic_values import TopicInfo
from kafscale.process.health import Health
from kafscale.telemetry import Finding, State
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1 import common_pb2
from kafscale.v1.metadata_pb2 import Member, Sink
from kafscale.v1.segment_pb2 import SegmentContents
from kafscale.v1.storage_pb2 import (
    DescribeSegmentRequest,
    LogSizesReply,
    LogSizesRequest,
    PartitionOffset,
    SegmentDescribed,
    SegmentsReply,
    SegmentsRequest,
)
from services.gateway.admin import topics
from services.gateway.admin.service import AdminService
from services.gateway.service import Gateway
from tests.support.gateway.admin import admin_of, refused
from tests.support.gateway.asking import produce
from tests.support.gateway.fake_coordinator import FakeCoordinator
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import NAMESPACE, Cluster, Harness, batch, running_gateway
from tests.unit.gateway.test_topics import metadata
from tests.unit.gateway.two_owners import settled, two_owners

CODE = grpc.StatusCode


async def test_cluster_status_lists_processes_with_health_and_owned_partitions() -> None:
    cluster, a, b = Cluster(), FakeStorage(), FakeStorage()
    await cluster.add("a", a)
    await cluster.add("b", b, leaving=True)
    await cluster.add_coordinator("c", FakeCoordinator())
    indexer = Member(format=1, run_id="i", service="indexer", address="i:9096", version="9.9", started_ms=7)
    await cluster.metadata.txn((), [Put(paths.member_key(NAMESPACE, "indexer", "i"), indexer.SerializeToString())])
    async with running_gateway(cluster=cluster) as harness:
        answers: dict[str, bool | Exception] = {"b": False, "c": Unavailable("no connection")}
        health = Health()
        health.add("etcd", lambda: Finding(State.DEGRADED, "slow"))
        admin = await admin_of(harness, health=health, answers=answers)
        topic = await harness.topic("t", 4)
        for partition, owner in enumerate(("a", "a", "b", "gone")):
            await cluster.own(topic, owner, partition=partition)
        await settled()
        reply = await admin.cluster_status(pb.ClusterStatusRequest())
    assert reply.cluster_id == (await harness.catalog.cluster()).cluster_id
    assert (reply.namespace, reply.topics, reply.partitions, reply.partitions_without_owner) == (NAMESPACE, 1, 4, 1)
    members = {each.run_id: each for each in reply.members}
    gateway = next(each for each in reply.members if each.service == "gateway")
    assert [each.service for each in reply.members] == ["coordinator", "gateway", "indexer", "storage", "storage"]
    assert (gateway.node_id, gateway.owned, gateway.address) == (0, 4, "")
    assert gateway.listeners == [f"PLAINTEXT://127.0.0.1:{harness.listeners[0].port}"]
    assert (gateway.health, gateway.detail) == (pb.ClusterMember.READY, "etcd degraded: slow")
    assert (members["a"].owned, members["a"].health, members["a"].address) == (2, pb.ClusterMember.READY, "a:9095")
    assert (members["b"].owned, members["b"].health, members["b"].leaving) == (1, pb.ClusterMember.NOT_READY, True)
    assert (members["c"].owned, members["c"].health) == (64, pb.ClusterMember.UNREACHABLE)
    assert members["c"].detail == "no connection"
    assert (members["i"].version, members["i"].started_ms, members["i"].owned) == ("9.9", 7, 0)


async def test_each_process_is_asked_once_for_its_totals_and_one_that_does_not_answer_is_named() -> None:
    cluster = Cluster()
    await cluster.add("a", FakeStorage())
    await cluster.add("b", FakeStorage())
    both = Member(format=1, run_id="i", service="indexer", address="a:9095")
    await cluster.metadata.txn((), [Put(paths.member_key(NAMESPACE, "indexer", "i"), both.SerializeToString())])
    async with running_gateway(cluster=cluster) as harness:
        admin = await admin_of(harness, answers={"b": Unavailable("no connection")})
        await settled()
        reply = await admin.cluster_totals(pb.ClusterTotalsRequest())
    found = [(each.address, list(each.services), each.totals.process, each.error) for each in reply.instances]
    assert found == [
        ("", ["gateway"], "own", ""),
        ("a:9095", ["indexer", "storage"], "a", ""),
        ("b:9095", ["storage"], "", "no connection"),
    ]


async def test_topics_are_created_grown_and_deleted_for_kafka_clients_too() -> None:
    async with running_gateway(auto_create_partitions=3) as harness:
        admin, client = await admin_of(harness), await harness.connect()
        made = (await admin.create_topic(pb.CreateTopicRequest(name="b", configs={"retention.ms": "5"}))).topic
        assert (made.name, made.partitions, dict(made.configs), made.deleting) == ("b", 3, {"retention.ms": "5"}, False)
        await admin.create_topic(pb.CreateTopicRequest(name="a", partitions=2))
        only_checked = await admin.create_topic(pb.CreateTopicRequest(name="c", partitions=2, validate_only=True))
        assert (only_checked.topic.partitions, only_checked.topic.id) == (2, "")
        grown = await admin.grow_topic(pb.GrowTopicRequest(name="a", partitions=5))
        assert grown.topic.partitions == 5
        await admin.grow_topic(pb.GrowTopicRequest(name="a", partitions=6, validate_only=True))
        seen = (await metadata(client, None)).topics
        assert {(each.name, len(each.partitions)) for each in seen} == {("a", 5), ("b", 3)}
        ids = {name: base64.urlsafe_b64encode(topic.id).decode().rstrip("=") for name, topic in _live(harness)}
        assert ids["b"] == made.id
        await admin.delete_topic(pb.DeleteTopicRequest(name="b"))
        assert [each.name for each in (await metadata(client, None)).topics] == ["a"]
        all_topics = (await admin.list_topics(pb.ListTopicsRequest())).topics
        assert [(each.name, each.deleting) for each in all_topics] == [("a", False), ("b", True)]
        described = (await admin.describe_topic(pb.DescribeTopicRequest(name="a"))).topic
        assert (described.name, described.partitions, described.id) == ("a", 5, ids["a"])


def _live(harness: Harness) -> list[tuple[str, TopicInfo]]:
    return [(name, topic) for name, topic in harness.catalog.view.by_name.items() if topic.live]


async def test_invalid_topic_requests_have_distinct_codes() -> None:
    async with running_gateway(max_partitions_per_topic=9) as harness:
        admin = await admin_of(harness)
        await harness.topic("t", 2)
        with refused(CODE.ALREADY_EXISTS, "Topic 't' already exists"):
            await admin.create_topic(pb.CreateTopicRequest(name="t"))
        with refused(CODE.INVALID_ARGUMENT, "not a legal one"):
            await admin.create_topic(pb.CreateTopicRequest(name="a b"))
        with refused(CODE.INVALID_ARGUMENT, "10 partitions exceed the limit of 9"):
            await admin.create_topic(pb.CreateTopicRequest(name="u", partitions=10))
        with refused(CODE.INVALID_ARGUMENT, "larger than 0"):
            await admin.create_topic(pb.CreateTopicRequest(name="u", partitions=-2))
        with refused(CODE.INVALID_ARGUMENT, "Unknown topic config name: no.such"):
            await admin.create_topic(pb.CreateTopicRequest(name="u", configs={"no.such": "1"}))
        with refused(CODE.INVALID_ARGUMENT, "would not be an increase"):
            await admin.grow_topic(pb.GrowTopicRequest(name="t", partitions=1))
        with refused(CODE.INVALID_ARGUMENT, "10 partitions exceed the limit of 9"):
            await admin.grow_topic(pb.GrowTopicRequest(name="t", partitions=10))
        for call in (
            lambda: admin.grow_topic(pb.GrowTopicRequest(name="no", partitions=3)),
            lambda: admin.delete_topic(pb.DeleteTopicRequest(name="no")),
            lambda: admin.describe_topic(pb.DescribeTopicRequest(name="no")),
            lambda: admin.list_partitions(pb.ListPartitionsRequest(topics=["t", "no"])),
            lambda: admin.flush_topics(pb.FlushTopicsRequest(topics=["no"])),
            lambda: admin.describe_configs(pb.DescribeConfigsRequest(topic="no")),
            lambda: admin.alter_configs(pb.AlterConfigsRequest(topic="no", set={"flush.ms": "1"})),
        ):
            with refused(CODE.NOT_FOUND, "The topic no does not exist"):
                await call()


async def test_quotas_are_set_changed_and_removed_with_kafkas_rules() -> None:
    user, default = pb.QuotaPart(type="user", name="ann"), pb.QuotaPart(type="client-id")
    async with running_gateway() as harness:
        admin = await admin_of(harness)

        async def change(*entity: pb.QuotaPart, remove: tuple[str, ...] = (), check: bool = False, **to: float) -> None:
            await admin.set_quotas(pb.SetQuotasRequest(entity=entity, set=to, remove=remove, validate_only=check))

        await change(user, default, producer_byte_rate=5, request_percentage=2.5)
        await change(default, user, producer_byte_rate=7, remove=("request_percentage",))
        await change(pb.QuotaPart(type="ip"), connection_creation_rate=9)
        await change(user, producer_byte_rate=1, check=True)
        found = (await admin.list_quotas(pb.ListQuotasRequest())).quotas
        assert [(list(each.entity), dict(each.limits)) for each in found] == [
            ([pb.QuotaPart(type="ip")], {"connection_creation_rate": 9}),
            ([user, default], {"producer_byte_rate": 7}),
        ]
        await change(user, default, remove=("producer_byte_rate", "never-set"))
        assert len((await admin.list_quotas(pb.ListQuotasRequest())).quotas) == 1
        with refused(CODE.INVALID_ARGUMENT, "must be greater than 0"):
            await change(user, producer_byte_rate=float("nan"))
        with refused(CODE.INVALID_ARGUMENT, "Invalid configuration key"):
            await change(user, connection_creation_rate=1)
        with refused(CODE.INVALID_ARGUMENT, "named twice"):
            await change(user, pb.QuotaPart(type="user"), producer_byte_rate=1)
        with refused(CODE.INVALID_ARGUMENT, "sets and removes the same"):
            await change(user, producer_byte_rate=1, remove=("producer_byte_rate",))
        with refused(CODE.INVALID_ARGUMENT, "neither"):
            await change(user)


async def test_a_starting_gateway_is_unavailable() -> None:
    async with running_gateway() as harness:
        running = await admin_of(harness)
        starting = AdminService(Gateway(harness.parts), running._cluster, running._totals)
        with pytest.raises(Unavailable, match="starting"):
            await starting.list_topics(pb.ListTopicsRequest())


async def test_partitions_are_listed_with_owners_ends_and_sizes() -> None:
    async with two_owners(3) as two:
        admin, client = await admin_of(two.harness), await two.harness.connect()
        first, second = batch(b"1", b"2"), batch(b"3")
        await produce(client, first)
        await produce(client, second)
        await produce(client, first, partition=2)
        two.a.partition(two.ref(0)).log_start = 1
        reply = await admin.list_partitions(pb.ListPartitionsRequest())
        listed = [(each.topic, each.partition, each.owner_run, each.epoch, each.error) for each in reply.partitions]
        assert listed == [("t", 0, "a", 1, ""), ("t", 1, "b", 1, ""), ("t", 2, "a", 1, "")]
        counters = [(each.log_start, each.high_watermark, each.bytes, each.segments) for each in reply.partitions]
        assert counters == [(1, 3, len(first) + len(second), 2), (0, 0, 0, 0), (0, 2, len(first), 1)]
        assert reply.partitions[0].owner == "a:9095"


async def test_an_older_owner_reports_an_unknown_number_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway() as harness:
        admin, client = await admin_of(harness), await harness.connect()
        await harness.topic("t", 2)
        await produce(client, batch(b"1"))
        log_sizes = harness.storage.log_sizes

        async def older(request: LogSizesRequest, *, timeout: float) -> LogSizesReply:
            reply = await log_sizes(request, timeout=timeout)
            for each in reply.results:
                each.ClearField("segments")
            return reply

        monkeypatch.setattr(harness.storage, "log_sizes", older)
        listed = (await admin.list_partitions(pb.ListPartitionsRequest())).partitions
        assert [(each.bytes, each.segments, each.error) for each in listed] == [(len(batch(b"1")), -1, ""), (0, 0, "")]


async def test_partitions_without_an_answer_are_listed_with_an_error() -> None:
    async with two_owners(2, owner_grace_ms=50) as two:
        admin = await admin_of(two.harness)
        two.b.hand_over(two.ref(1), "")
        (_, moved) = (await admin.list_partitions(pb.ListPartitionsRequest(topics=["t"]))).partitions
        assert (moved.error, moved.log_start, moved.high_watermark, moved.bytes) == ("NOT_OWNER", -1, -1, -1)
        await two.harness.cluster.remove("b")
        await settled()
        (known, lost) = (await admin.list_partitions(pb.ListPartitionsRequest(topics=["t"]))).partitions
        assert (known.error, known.owner_run) == ("", "a")
        assert (lost.owner, lost.owner_run, lost.epoch) == ("", "", 1)


async def test_buffered_records_are_flushed_on_demand() -> None:
    async with two_owners(2) as two:
        admin, client = await admin_of(two.harness), await two.harness.connect()
        two.a.auto_commit = two.b.auto_commit = False
        await produce(client, batch(b"1"), acks=1)
        await produce(client, batch(b"1", b"2"), partition=1, acks=1)
        only = await admin.flush_topics(pb.FlushTopicsRequest(topics=["t"], partition=1))
        assert [(each.partition, each.high_watermark, each.error) for each in only.partitions] == [(1, 2, "")]
        assert two.a.partition(two.ref(0)).high_watermark == 0
        everything = await admin.flush_topics(pb.FlushTopicsRequest())
        assert [(each.partition, each.high_watermark) for each in everything.partitions] == [(0, 1), (1, 2)]
        two.a.hand_over(two.ref(0), "")
        (moved, _) = (await admin.flush_topics(pb.FlushTopicsRequest(topics=["t"]))).partitions
        assert (moved.high_watermark, moved.error) == (-1, "NOT_OWNER")
        with refused(CODE.NOT_FOUND, "no partition 2"):
            await admin.flush_topics(pb.FlushTopicsRequest(topics=["t"], partition=2))
        with refused(CODE.INVALID_ARGUMENT, "requires exactly one topic"):
            await admin.flush_topics(pb.FlushTopicsRequest(partition=0))


async def test_a_flush_follows_a_partition_to_its_new_owner() -> None:
    async with two_owners(1) as two:
        admin = await admin_of(two.harness)
        two.b.partition(two.ref(0)).end = 4
        two.a.hand_over(two.ref(0), "b")
        (done,) = (await admin.flush_topics(pb.FlushTopicsRequest(topics=["t"]))).partitions
        assert (done.high_watermark, done.error) == (4, "")


async def test_segments_are_requested_from_the_owner_in_pages() -> None:
    async with two_owners(2) as two:
        admin, client = await admin_of(two.harness), await two.harness.connect()
        await produce(client, batch(b"1", b"2"))
        await produce(client, batch(b"3"))
        whole = await admin.list_segments(pb.ListSegmentsRequest(topic="t", partition=0))
        assert [(each.base_offset, each.end_offset, each.epoch) for each in whole.segments] == [(0, 2, 1), (2, 3, 1)]
        assert (whole.next_offset, whole.high_watermark) == (3, 3)
        first = await admin.list_segments(pb.ListSegmentsRequest(topic="t", partition=0, limit=1, start_offset=-5))
        assert (len(first.segments), first.next_offset) == (1, 2)
        two.a.rotten.add(two.a.partition(two.ref(0)).batches[1][2])
        checked = await admin.list_segments(pb.ListSegmentsRequest(topic="t", partition=0, verify=True))
        assert [list(each.faults) for each in checked.segments] == [[], ["rotten"]]
        two.a.hand_over(two.ref(0), "b")
        moved = await admin.list_segments(pb.ListSegmentsRequest(topic="t", partition=0))
        assert list(moved.segments) == []
        two.b.hand_over(two.ref(1), "")
        with refused(CODE.UNAVAILABLE, "t-1: NOT_OWNER"):
            await admin.list_segments(pb.ListSegmentsRequest(topic="t", partition=1))
        with refused(CODE.NOT_FOUND, "no partition 2"):
            await admin.list_segments(pb.ListSegmentsRequest(topic="t", partition=2))
        with refused(CODE.NOT_FOUND, "The topic no does not exist"):
            await admin.list_segments(pb.ListSegmentsRequest(topic="no"))


async def test_damage_and_an_unavailable_owner_are_different_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway() as harness:
        admin = await admin_of(harness)
        await harness.topic("t")

        async def damaged(_: SegmentsRequest, *, timeout: float) -> SegmentsReply:
            return SegmentsReply(status=common_pb2.DAMAGED, detail="a hole")

        async def silent(_: SegmentsRequest, *, timeout: float) -> SegmentsReply:
            raise Unavailable("no answer")

        monkeypatch.setattr(harness.storage, "segments", damaged)
        with refused(CODE.DATA_LOSS, "t-0: DAMAGED: a hole"):
            await admin.list_segments(pb.ListSegmentsRequest(topic="t"))
        monkeypatch.setattr(harness.storage, "segments", silent)
        with refused(CODE.UNAVAILABLE, "t-0: no storage instance answered"):
            await admin.list_segments(pb.ListSegmentsRequest(topic="t"))


async def test_the_owner_describes_a_segment_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, asked = SegmentDescribed(contents=SegmentContents(object="key", batch_count=7)), []

    async def describe(request: DescribeSegmentRequest, *, timeout: float) -> SegmentDescribed:
        asked.append((request.partition.topic, request.offset, request.first_batch, request.limit))
        return answer

    async with running_gateway() as harness:
        admin = await admin_of(harness)
        await harness.topic("t")
        monkeypatch.setattr(harness.storage, "describe_segment", describe, raising=False)
        request = pb.DescribeStoredSegmentRequest(topic="t", offset=5, first_batch=6, limit=7)
        assert (await admin.describe_segment(request)).contents == answer.contents
        assert asked == [("t", 5, 6, 7)]
        for status, code in (
            (common_pb2.INVALID, CODE.INVALID_ARGUMENT),
            (common_pb2.DAMAGED, CODE.DATA_LOSS),
            (common_pb2.UNAVAILABLE, CODE.UNAVAILABLE),
        ):
            answer = SegmentDescribed(status=status, detail="why")
            with refused(code, "t-0: [A-Z]+: why"):
                await admin.describe_segment(request)


async def test_sinks_are_listed_also_those_whose_record_another_release_wrote() -> None:
    async with running_gateway() as harness:
        admin = await admin_of(harness)
        left = [common_pb2.PartitionRef(topic="t", partition=3)]
        records = {
            "a": Sink(format=1, sink="a", epoch=4, committed_ms=9, remaining=left).SerializeToString(),
            "b": Sink(format=1, sink="b", epoch=-1, once=True, discarded=[Sink.Discard()]).SerializeToString(),
            "c": Sink(format=99, sink="c").SerializeToString(),
            "d": b"\xff",
        }
        await harness.metadata.txn((), [Put(paths.sink_key(NAMESPACE, name), value) for name, value in records.items()])
        found = (await admin.list_sinks(pb.ListSinksRequest())).sinks
    assert [(each.name, each.epoch, each.error) for each in found] == [
        ("a", 4, ""),
        ("b", -1, ""),
        ("c", 0, "its record has format 99"),
        ("d", 0, "its record does not parse"),
    ]
    assert [(each.topic, each.partition) for each in found[0].remaining] == [("t", 3)]
    assert (found[1].once, found[1].discarded_epochs) == (True, 1)


async def test_configs_are_described_set_and_unset() -> None:
    async with running_gateway(retention_ms=77) as harness:
        admin = await admin_of(harness)
        await harness.topic("t", flush_ms="7", max_message_bytes="1000")
        change = pb.AlterConfigsRequest(topic="t", set={"segment.bytes": "2000000"}, unset=["flush.ms"])
        change.validate_only = True
        await admin.alter_configs(change)
        assert "segment.bytes" not in (await admin.describe_topic(pb.DescribeTopicRequest(name="t"))).topic.configs
        change.validate_only = False
        await admin.alter_configs(change)
        described = (await admin.describe_configs(pb.DescribeConfigsRequest(topic="t"))).configs
        listed = {each.name: (each.value, each.source) for each in described}
        assert listed["segment.bytes"] == ("2000000", "topic")
        assert listed["max.message.bytes"] == ("1000", "topic")
        assert listed["flush.ms"] == ("500", "default")
        assert listed["retention.ms"] == ("77", "broker")
        assert all(each.documentation for each in described)
        with refused(CODE.INVALID_ARGUMENT, "Unknown topic config name: nope"):
            await admin.alter_configs(pb.AlterConfigsRequest(topic="t", set={"nope": "1"}))
        with refused(CODE.INVALID_ARGUMENT, "duplicate config keys"):
            await admin.alter_configs(pb.AlterConfigsRequest(topic="t", set={"flush.ms": "1"}, unset=["flush.ms"]))
        with refused(CODE.INVALID_ARGUMENT, r"retention\.msec"):
            await admin.alter_configs(pb.AlterConfigsRequest(topic="t", unset=["retention.msec"]))


async def test_a_change_that_the_metadata_store_does_not_finish_in_time_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_CHANGE_SECONDS", 0.1)
    async with running_gateway() as harness:
        admin = await admin_of(harness)
        await harness.topic("t")
        harness.metadata.faults.append(no_answer("get", key=paths.topic_key(NAMESPACE, "t"), times=1_000_000))
        with refused(CODE.DEADLINE_EXCEEDED, "deletion of the topic was not confirmed within"):
            await admin.delete_topic(pb.DeleteTopicRequest(name="t"))


async def test_an_unreadable_partition_is_listed_with_the_reason() -> None:
    async with running_gateway() as harness:
        admin = await admin_of(harness)
        await harness.topic("t")
        damage = PartitionOffset(status=common_pb2.DAMAGED, detail="a hole")
        harness.storage.offsets.update(dict.fromkeys((-1, -2), damage))
        (listed,) = (await admin.list_partitions(pb.ListPartitionsRequest(topics=["t"]))).partitions
        assert listed.error == "DAMAGED: a hole"
