"""Admin requests about consumer groups."""

from collections.abc import Awaitable, Callable, Mapping
from struct import pack
from typing import Any

import grpc
import pytest

from kafscale.errors import Unavailable
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1 import common_pb2, coordinator_pb2
from kafscale.v1.coordinator_pb2 import GroupError
from kafscale.v1.storage_pb2 import PartitionOffset
from services.gateway.admin.assignment import assigned_partitions
from services.gateway.admin.service import AdminService
from tests.support.gateway.admin import admin_of, refused
from tests.support.gateway.assignments import assignment
from tests.support.gateway.group_asking import commit, stable
from tests.support.gateway.harness import Harness, running_gateway

CODE = grpc.StatusCode
Moves = list[tuple[str, int, int, int]]


@pytest.mark.parametrize(
    ("data", "parsed"),
    [
        (b"", {}),
        (b"all", {}),
        (pack(">hi", 0, 2**31 - 1), {}),
        (assignment(b=(1, 0), a=(2,)), {"a": [2], "b": [0, 1]}),
    ],
)
def test_only_assignments_of_consumers_are_parsed(data: bytes, parsed: Mapping[str, list[int]]) -> None:
    assert assigned_partitions(data) == parsed
    assert list(assigned_partitions(data)) == sorted(parsed)


async def _log(harness: Harness, name: str, ends: list[tuple[int, int]]) -> None:
    """Create a topic whose partitions' logs have these starts and ends."""
    topic = await harness.topic(name, len(ends))
    for index, (log_start, high_watermark) in enumerate(ends):
        ref = common_pb2.PartitionRef(topic=name, topic_id=topic.id, partition=index)
        partition = harness.storage.partition(ref)
        partition.log_start, partition.high_watermark = log_start, high_watermark


async def test_a_group_is_described_with_its_members_and_lag() -> None:
    async with running_gateway() as harness:
        admin, client = await admin_of(harness), await harness.connect()
        await _log(harness, "t", [(0, 100), (5, 50), (0, 7)])
        member, generation = await stable(client, assignment=assignment(t=(0, 2)))
        who: Any = {"generation": generation, "member_id": member}
        await commit(client, {"t": {0: (40, "note"), 1: (50, "")}}, **who)
        reply = await admin.describe_consumer_group(pb.DescribeConsumerGroupRequest(group="g"))
        (other,) = (await admin.list_consumer_groups(pb.ListConsumerGroupsRequest())).groups
        none = (await admin.list_consumer_groups(pb.ListConsumerGroupsRequest(states=["Empty"]))).groups
    assert (reply.group.state, reply.group.protocol_type, reply.protocol) == ("Stable", "consumer", "range")
    assert (reply.group.coordinator, other) == ("coordinator:9096", reply.group)
    assert list(none) == []
    (listed,) = reply.members
    assert (listed.member_id, listed.client_id, listed.client_host) == (member, "test", "/127.0.0.1")
    assert [(each.topic, list(each.partitions)) for each in listed.assigned] == [("t", [0, 2])]
    offsets = [(each.partition, each.committed, each.high_watermark, each.lag) for each in reply.offsets]
    assert offsets == [(0, 40, 100, 60), (1, 50, 50, 0), (2, -1, 7, -1)]
    assert [(each.member_id, each.metadata) for each in reply.offsets] == [(member, "note"), ("", ""), (member, "")]


async def test_assignments_of_missing_partitions_are_listed_without_offsets() -> None:
    """Members choose the bytes of assignments."""
    async with running_gateway() as harness:
        admin, client = await admin_of(harness), await harness.connect()
        await _log(harness, "t", [(0, 100), (0, 50)])
        await stable(client, assignment=assignment(none=(0,), t=(-9, -1, 1, 2)))
        reply = await admin.describe_consumer_group(pb.DescribeConsumerGroupRequest(group="g"))
    assert [(each.topic, list(each.partitions)) for each in reply.members[0].assigned] == [
        ("none", [0]),
        ("t", [-9, -1, 1, 2]),
    ]
    assert [(each.topic, each.partition, each.high_watermark) for each in reply.offsets] == [("t", 1, 50)]


async def test_an_unknown_lag_is_not_0() -> None:
    async with running_gateway() as harness:
        admin, client = await admin_of(harness), await harness.connect()
        await _log(harness, "t", [(0, 100)])
        await commit(client, {"t": {0: (40, "")}})
        harness.storage.offsets[-1] = PartitionOffset(status=common_pb2.UNAVAILABLE)
        reply = await admin.describe_consumer_group(pb.DescribeConsumerGroupRequest(group="g"))
        assert [(each.committed, each.high_watermark, each.lag) for each in reply.offsets] == [(40, -1, -1)]


async def test_offsets_of_deleted_topics_are_not_listed() -> None:
    async with running_gateway() as harness:
        admin, client = await admin_of(harness), await harness.connect()
        await _log(harness, "t", [(0, 100)])
        await _log(harness, "gone", [(0, 100)])
        await commit(client, {"t": {0: (40, "")}, "gone": {0: (1, "")}})
        await harness.catalog.mark_deleting("gone")
        reply = await admin.describe_consumer_group(pb.DescribeConsumerGroupRequest(group="g"))
        assert [each.topic for each in reply.offsets] == ["t"]
        assert await _reset(admin, earliest=True) == [("t", 0, 40, 0)]


async def _reset(admin: AdminService, *topics: pb.ResetTopic, **where: Any) -> Moves:
    reply = await admin.reset_offsets(pb.ResetOffsetsRequest(group="g", topics=topics, **where))
    return [(each.topic, each.partition, each.before, each.after) for each in reply.offsets]


@pytest.mark.parametrize(
    ("where", "after"),
    [
        ({"earliest": True}, [10, 0]),
        ({"latest": True}, [100, 50]),
        ({"offset": 20}, [20, 20]),
        ({"offset": 3}, [10, 3]),
        ({"offset": 1 << 40}, [100, 50]),
        ({"shift_by": -15}, [25, 0]),
        ({"shift_by": 15}, [55, 25]),
        ({"timestamp_ms": 5}, [33, 33]),
        ({"timestamp_ms": 6}, [100, 50]),
    ],
)
async def test_offsets_are_reset_within_the_log(where: Mapping[str, Any], after: list[int]) -> None:
    async with running_gateway() as harness:
        admin, client = await admin_of(harness), await harness.connect()
        await _log(harness, "t", [(10, 100), (0, 50), (0, 9)])
        harness.storage.offsets.update({5: PartitionOffset(offset=33, timestamp=5), 6: PartitionOffset(offset=-1)})
        await commit(client, {"t": {0: (40, ""), 1: (10, "")}})
        moves = [("t", 0, 40, after[0]), ("t", 1, 10, after[1])]
        assert await _reset(admin, validate_only=True, **where) == moves
        assert await _committed(admin) == {0: 40, 1: 10}
        assert await _reset(admin, **where) == moves
        assert await _committed(admin) == dict(enumerate(after))


async def _committed(admin: AdminService) -> dict[int, int]:
    reply = await admin.describe_consumer_group(pb.DescribeConsumerGroupRequest(group="g"))
    return {each.partition: each.committed for each in reply.offsets}


async def test_offsets_can_be_reset_for_a_new_group() -> None:
    async with running_gateway() as harness:
        admin = await admin_of(harness)
        await _log(harness, "t", [(10, 100), (0, 50)])
        with refused(CODE.NOT_FOUND, "no committed offsets. Name the topics"):
            await _reset(admin, latest=True)
        only = pb.ResetTopic(topic="t", partitions=[1])
        assert await _reset(admin, only, latest=True) == [("t", 1, -1, 50)]
        assert await _reset(admin, pb.ResetTopic(topic="t"), earliest=True) == [("t", 0, -1, 10), ("t", 1, 50, 0)]
        assert await _committed(admin) == {0: 10, 1: 0}


async def test_an_invalid_reset_changes_nothing() -> None:
    async with running_gateway() as harness:
        admin, client = await admin_of(harness), await harness.connect()
        await _log(harness, "t", [(0, 100), (0, 100)])
        await commit(client, {"t": {0: (40, "")}})
        whole, wrong = pb.ResetTopic(topic="t"), pb.ResetTopic(topic="t", partitions=[0, 2])
        with refused(CODE.INVALID_ARGUMENT, "does not say to which offsets"):
            await _reset(admin)
        with refused(CODE.NOT_FOUND, "The topic no does not exist"):
            await _reset(admin, whole, pb.ResetTopic(topic="no"), earliest=True)
        with refused(CODE.NOT_FOUND, "The topic t has no partition 2"):
            await _reset(admin, wrong, earliest=True)
        with refused(CODE.INVALID_ARGUMENT, "The group g has no committed offset for t-1"):
            await _reset(admin, whole, shift_by=1)
        with refused(CODE.INVALID_ARGUMENT, "must not be negative"):
            await _reset(admin, timestamp_ms=-1)
        with refused(CODE.INVALID_ARGUMENT, "group name must not be empty"):
            await admin.reset_offsets(pb.ResetOffsetsRequest(earliest=True))
        harness.storage.offsets[-2] = PartitionOffset(status=common_pb2.DAMAGED, detail="a hole")
        with refused(CODE.UNAVAILABLE, "t-0: DAMAGED: a hole; nothing was changed"):
            await _reset(admin, earliest=True)
        del harness.storage.offsets[-2]
        assert await _committed(admin) == {0: 40}


async def test_a_group_with_members_keeps_its_offsets() -> None:
    async with running_gateway() as harness:
        admin, client = await admin_of(harness), await harness.connect()
        await _log(harness, "t", [(0, 100)])
        member, generation = await stable(client)
        who: Any = {"generation": generation, "member_id": member}
        await commit(client, {"t": {0: (40, "")}}, **who)
        with refused(CODE.FAILED_PRECONDITION, r"The group g has members \(Stable\); stop them first"):
            await _reset(admin, earliest=True)
        with refused(CODE.FAILED_PRECONDITION, "The group g has members; stop them first"):
            await admin.delete_consumer_group(pb.DeleteConsumerGroupRequest(group="g"))
        await client.ask(13, 1, group_id="g", member_id=member)
        assert await _reset(admin, earliest=True) == [("t", 0, 40, 0)]
        await admin.delete_consumer_group(pb.DeleteConsumerGroupRequest(group="g"))
        with refused(CODE.NOT_FOUND, "The group g does not exist"):
            await admin.describe_consumer_group(pb.DescribeConsumerGroupRequest(group="g"))
        with refused(CODE.NOT_FOUND, "The group g does not exist"):
            await admin.delete_consumer_group(pb.DeleteConsumerGroupRequest(group="g"))


async def test_a_member_that_joins_meanwhile_keeps_its_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway() as harness:
        admin, client = await admin_of(harness), await harness.connect()
        await _log(harness, "t", [(0, 100)])
        await commit(client, {"t": {0: (40, "")}})
        commits = harness.coordinator.offset_commit

        async def join_first(
            request: coordinator_pb2.OffsetCommitRequest, *, timeout: float
        ) -> coordinator_pb2.OffsetCommitReply:
            await stable(client)
            return await commits(request, timeout=timeout)

        monkeypatch.setattr(harness.coordinator, "offset_commit", join_first)
        with refused(CODE.FAILED_PRECONDITION, "The group g has members; stop them first"):
            await _reset(admin, earliest=True)
        assert await _committed(admin) == {0: 40}


async def test_a_coordinator_that_does_not_answer_is_unavailable() -> None:
    async with running_gateway() as harness:
        admin = await admin_of(harness)
        await _log(harness, "t", [(0, 100)])
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: admin.list_consumer_groups(pb.ListConsumerGroupsRequest()),
            lambda: admin.describe_consumer_group(pb.DescribeConsumerGroupRequest(group="g")),
            lambda: admin.delete_consumer_group(pb.DeleteConsumerGroupRequest(group="g")),
            lambda: _reset(admin, pb.ResetTopic(topic="t"), earliest=True),
        ]
        for fault in (Unavailable("no answer"), None):
            harness.coordinator.fails = fault
            harness.coordinator.refuses = GroupError.COORDINATOR_LOAD_IN_PROGRESS
            for call in calls[1:] if fault is None else calls:
                with refused(CODE.UNAVAILABLE, "[Cc]oordinator|groups"):
                    await call()
