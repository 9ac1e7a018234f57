"""Metadata, CreateTopics, DeleteTopics and ListOffsets: valid and invalid requests, and their replies."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from trio.testing import wait_all_tasks_blocked

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import PartitionOffset
from tests.support.gateway.asking import produce
from tests.support.gateway.exchanges import nested
from tests.support.gateway.harness import NAMESPACE, Client, batch, read_response, request, running_gateway

SECONDS_5 = timedelta(seconds=5)


async def metadata(client: Client, names: list[str] | None, version: int = 9, *, create: bool = True) -> Any:
    topic_type = nested(3, version, "MetadataRequestTopic")
    requested = None if names is None else tuple(topic_type(name=name) for name in names)
    values: dict[str, Any] = {"topics": requested}
    if version >= 4:
        values["allow_auto_topic_creation"] = create
    if version >= 8:
        values |= {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
    return await client.ask(3, version, **values)


async def metadata_by_id(client: Client, topics: list[tuple[str | None, UUID | None]], version: int) -> Any:
    topic_type = nested(3, version, "MetadataRequestTopic")
    return await client.ask(
        3,
        version,
        topics=tuple(topic_type(name=name, topic_id=topic_id) for name, topic_id in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        **({"include_cluster_authorized_operations": False} if version == 10 else {}),
    )


def names(reply: Any) -> list[str]:
    return [topic.name for topic in reply.topics]


@pytest.mark.parametrize("version", [0, 1, 4, 9])
async def test_all_and_no_topics_are_requested_as_in_each_version(version: int) -> None:
    async with running_gateway() as harness:
        await harness.topic("b")
        await harness.topic("a")
        client = await harness.connect()
        if version == 0:
            assert names(await metadata(client, [], version)) == ["a", "b"]
        else:
            assert names(await metadata(client, None, version)) == ["a", "b"]
            assert names(await metadata(client, [], version)) == []


async def test_authorized_operations_are_returned_only_on_request() -> None:
    async with running_gateway() as harness:
        await harness.topic("a")
        reply = await metadata(await harness.connect(), ["a"])
        assert reply.cluster_authorized_operations == reply.topics[0].topic_authorized_operations == -(1 << 31)


@pytest.mark.parametrize(
    ("version", "client_allows", "setting", "made"),
    [
        (0, True, True, True),
        (3, True, True, True),
        (3, True, False, False),
        (4, True, True, True),
        (4, False, True, False),
        (4, True, False, False),
        (9, False, False, False),
    ],
)
async def test_a_topic_is_created_automatically_only_if_client_and_setting_allow_it(
    version: int, client_allows: bool, setting: bool, made: bool
) -> None:
    async with running_gateway(auto_create_topics=setting, auto_create_partitions=3) as harness:
        (topic,) = (await metadata(await harness.connect(), ["new"], version, create=client_allows)).topics
        assert topic.error_code == (0 if made else ErrorCode.unknown_topic_or_partition)
        assert len(topic.partitions) == (3 if made else 0)
        assert ("new" in harness.catalog.view.by_name) == made


async def test_metadata_of_all_topics_creates_none() -> None:
    async with running_gateway() as harness:
        await metadata(await harness.connect(), None)
        assert not harness.catalog.view.by_name


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
async def test_kafkas_internal_topics_are_never_created_automatically_but_may_be_by_hand(name: str) -> None:
    async with running_gateway(auto_create_topics=True) as harness:
        client = await harness.connect()
        (returned,) = (await metadata(client, [name])).topics
        assert (returned.name, returned.error_code) == (name, ErrorCode.unknown_topic_or_partition)
        assert not harness.catalog.view.by_name
        (made,) = (await create(client, topic(name))).topics
        assert made.error_code == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "ü"])
async def test_a_topic_with_an_illegal_name_is_not_created(name: str) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        reply = await metadata(client, [name, "fine"])
        assert [topic.error_code for topic in reply.topics] == [ErrorCode.invalid_topic_exception, 0]
        (made,) = (await create(client, topic(name))).topics
        assert made.error_code == ErrorCode.invalid_topic_exception
        assert list(harness.catalog.view.by_name) == ["fine"]


async def test_a_topic_with_a_colliding_name_is_not_created() -> None:
    async with running_gateway() as harness:
        await harness.topic("a.b")
        client = await harness.connect()
        (returned,) = (await metadata(client, ["a_b"])).topics
        assert returned.error_code == ErrorCode.invalid_topic_exception
        (made,) = (await create(client, topic("a_b"))).topics
        assert made.error_code == ErrorCode.invalid_topic_exception


async def test_a_topic_in_deletion_is_unknown_and_not_recreated() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        await harness.catalog.mark_deleting("t")
        client = await harness.connect()
        assert (await metadata(client, ["t"])).topics[0].error_code == ErrorCode.unknown_topic_or_partition
        assert names(await metadata(client, None)) == []


async def test_topics_are_found_by_id_since_version_12() -> None:
    async with running_gateway() as harness:
        made = await harness.topic("t")
        client = await harness.connect()
        requested: list[tuple[str | None, UUID | None]] = [(None, UUID(bytes=made.id)), (None, UUID(int=5))]
        known, unknown = (await metadata_by_id(client, requested, 12)).topics
        assert (known.error_code, known.name) == (0, "t")
        assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.unknown_topic_id, None, UUID(int=5))
        (refused,) = (await metadata_by_id(client, [("t", UUID(bytes=made.id))], 10)).topics
        assert refused.error_code == ErrorCode.invalid_request


async def test_a_topic_requested_twice_is_returned_once() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        assert names(await metadata(await harness.connect(), ["t", "t"])) == ["t"]


async def test_clients_get_the_advertised_address_of_their_listener() -> None:
    listeners = "IN://127.0.0.1:0,OUT://127.0.0.1:0"
    advertised = "IN://inside:1001,OUT://outside:1002"
    async with running_gateway(listeners=listeners, advertised_listeners=advertised, broker_id=7) as harness:
        for index, address in enumerate([("inside", 1001), ("outside", 1002)]):
            (broker,) = (await metadata(await harness.connect(index), [])).brokers
            assert (broker.node_id, broker.host, broker.port) == (7, *address)


def topic(name: str, partitions: int = 1, replication: int = 1, **more: Any) -> Any:
    configs = tuple(
        nested(19, 7, "CreatableTopicConfig")(name=key.replace("_", "."), value=value)
        for key, value in more.pop("configs", {}).items()
    )
    assignments = tuple(
        nested(19, 7, "CreatableReplicaAssignment")(partition_index=index, broker_ids=brokers)
        for index, brokers in more.pop("assignments", [])
    )
    return nested(19, 7, "CreatableTopic")(
        name=name, num_partitions=partitions, replication_factor=replication, assignments=assignments, configs=configs
    )


async def create(client: Client, *topics: Any, validate_only: bool = False, timeout: timedelta = SECONDS_5) -> Any:
    return await client.ask(19, 7, topics=topics, timeout=timeout, validate_only=validate_only)


@pytest.mark.parametrize(
    ("requested", "error", "partitions"),
    [
        (topic("t", -1, -1), 0, 2),
        (topic("t", 5, 3), 0, 5),
        (topic("t", 0), ErrorCode.invalid_partitions, -1),
        (topic("t", -2), ErrorCode.invalid_partitions, -1),
        (topic("t", 101), ErrorCode.invalid_partitions, -1),
        (topic("t", 1, 0), ErrorCode.invalid_replication_factor, -1),
        (topic("t", 1, -2), ErrorCode.invalid_replication_factor, -1),
        (topic("t", -1, -1, assignments=[(0, (0,)), (1, (0,))]), 0, 2),
        (topic("t", -1, -1, assignments=[(0, (7,))]), ErrorCode.invalid_replica_assignment, -1),
        (topic("t", 2, -1, assignments=[(0, (0,)), (1, (0,))]), ErrorCode.invalid_request, -1),
        (topic("t", -1, -1, assignments=[(0, (0,)), (2, (0,))]), ErrorCode.invalid_replica_assignment, -1),
        (topic("t", -1, -1, assignments=[(0, (0,)), (0, (0,))]), ErrorCode.invalid_replica_assignment, -1),
        (topic("t", -1, -1, assignments=[(0, ())]), ErrorCode.invalid_replica_assignment, -1),
        (topic("t", -1, -1, assignments=[(0, (0,)), (1, (0, 1))]), ErrorCode.invalid_replica_assignment, -1),
        (topic("t", -1, -1, assignments=[(0, (1, 1))]), ErrorCode.invalid_replica_assignment, -1),
        (topic("t", configs={"no_such": "1"}), ErrorCode.invalid_config, -1),
        (topic("t", configs={"retention_ms": "soon"}), ErrorCode.invalid_config, -1),
        (topic("t", configs={"retention_ms": None}), ErrorCode.invalid_config, -1),
        (topic("t", configs={"min_insync_replicas": "2"}), 0, 1),
    ],
)
async def test_create_topics_validates_requests(requested: Any, error: int, partitions: int) -> None:
    async with running_gateway(auto_create_partitions=2, max_partitions_per_topic=100) as harness:
        (made,) = (await create(await harness.connect(), requested)).topics
        assert (made.error_code, made.num_partitions) == (error, partitions)
        assert (made.error_message is None) == (error == 0)
        assert made.replication_factor == (1 if error == 0 else -1)
        assert ("t" in harness.catalog.view.by_name) == (error == 0)
        assert made.configs is not None


async def test_configs_are_returned_as_set_and_stored_normalized() -> None:
    set_to = {"cleanup.policy": " compact , delete", "retention.ms": "+5 ", "preallocate": "TRUE"}
    async with running_gateway() as harness:
        (made,) = (await create(await harness.connect(), topic("t", configs=set_to))).topics
        assert {returned.name: returned.value for returned in made.configs if returned.config_source == 1} == set_to
        kept = {"cleanup.policy": "compact,delete", "retention.ms": "5", "preallocate": "true"}
        assert harness.catalog.view.by_name["t"].configs == kept


async def test_existing_and_duplicate_topics_are_refused_and_others_created() -> None:
    async with running_gateway() as harness:
        await harness.topic("old")
        reply = await create(await harness.connect(), topic("old"), topic("twice"), topic("new"), topic("twice"))
        codes = {made.name: made.error_code for made in reply.topics}
        assert codes == {
            "old": ErrorCode.topic_already_exists,
            "twice": ErrorCode.invalid_request,
            "new": ErrorCode.none,
        }
        assert sorted(harness.catalog.view.by_name) == ["new", "old"]


async def test_validate_only_creates_nothing() -> None:
    async with running_gateway() as harness:
        (returned,) = (await create(await harness.connect(), topic("t", 4), validate_only=True)).topics
        assert (returned.error_code, returned.num_partitions, returned.topic_id) == (0, 4, None)
        assert not harness.catalog.view.by_name


async def test_create_topics_waits_for_a_name_in_deletion() -> None:
    async with running_gateway() as harness:
        old = await harness.topic("t")
        await harness.catalog.mark_deleting("t")
        client = await harness.connect()
        await client.send(19, 7, request(19, 7, topics=(topic("t"),), timeout=SECONDS_5, validate_only=False))
        await wait_all_tasks_blocked(0.02)
        await harness.catalog.finish_delete("t", old.id, 5, deleter=paths.member_key(NAMESPACE, "storage", "storage"))
        _, body = await client.receive()
        (made,) = read_response(19, 7, body).topics
        assert made.error_code == 0
        assert made.topic_id.bytes != old.id


async def test_a_name_in_deletion_times_out_and_does_not_delay_other_topics() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        await harness.catalog.mark_deleting("t")
        reply = await create(await harness.connect(), topic("t"), topic("other"), timeout=timedelta(milliseconds=50))
        assert [made.error_code for made in reply.topics] == [ErrorCode.request_timed_out, 0]


async def delete(client: Client, *named: tuple[str | None, UUID | None]) -> list[Any]:
    state = nested(20, 6, "DeleteTopicState")
    topics = tuple(state(name=name, topic_id=topic_id) for name, topic_id in named)
    return list((await client.ask(20, 6, topics=topics, timeout=SECONDS_5)).responses)


async def test_topics_are_deleted_by_name_and_by_id() -> None:
    async with running_gateway() as harness:
        await harness.topic("a")
        b = await harness.topic("b")
        gone = await delete(await harness.connect(), ("a", None), (None, UUID(bytes=b.id)))
        assert [(one.name, one.error_code) for one in gone] == [("a", 0), ("b", 0)]
        assert not any(one.live for one in harness.catalog.view.by_name.values())


async def test_delete_topics_refuses_invalid_requests() -> None:
    async with running_gateway() as harness:
        made = await harness.topic("a")
        twice = await harness.topic("twice")
        refused = await delete(
            await harness.connect(),
            ("nope", None),
            (None, UUID(int=9)),
            ("a", UUID(bytes=made.id)),
            (None, None),
            ("twice", None),
            (None, UUID(bytes=twice.id)),
        )
        assert [one.error_code for one in refused] == [
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_id,
            *[ErrorCode.invalid_request] * 4,
        ]
        assert all(one.live for one in harness.catalog.view.by_name.values())


async def list_offsets(
    client: Client, timestamps: list[tuple[int, int]], version: int = 10, name: str = "t"
) -> list[Any]:
    partition_type, topic_type = nested(2, version, "ListOffsetsPartition"), nested(2, version, "ListOffsetsTopic")
    requested = tuple(partition_type(partition_index=index, timestamp=timestamp) for index, timestamp in timestamps)
    values: dict[str, Any] = {"replica_id": -1, "topics": (topic_type(name=name, partitions=requested),)}
    values |= {"isolation_level": 1} if version >= 2 else {}
    values |= {"timeout": SECONDS_5} if version >= 10 else {}
    return list((await client.ask(2, version, **values)).topics[0].partitions)


@pytest.mark.parametrize(
    ("timestamp", "version", "expected"),
    [
        (-1, 1, (0, 5, -1)),
        (-2, 1, (0, 2, -1)),
        (-3, 7, (0, 4, 900)),
        (-3, 6, (ErrorCode.unsupported_version, -1, -1)),
        (-4, 8, (0, 2, -1)),
        (-4, 7, (ErrorCode.unsupported_version, -1, -1)),
        (-5, 9, (0, -1, -1)),
        (-5, 8, (ErrorCode.unsupported_version, -1, -1)),
        (-6, 10, (ErrorCode.unsupported_version, -1, -1)),
        (800, 1, (0, 3, 850)),
        (10_000, 1, (0, -1, -1)),
    ],
)
async def test_list_offsets_answers_every_special_timestamp(
    timestamp: int, version: int, expected: tuple[int, int, int]
) -> None:
    async with running_gateway() as harness:
        await harness.topic()
        harness.storage.offsets = {
            -1: PartitionOffset(offset=5, timestamp=-1, leader_epoch=1),
            -2: PartitionOffset(offset=2, timestamp=-1, leader_epoch=1),
            -3: PartitionOffset(offset=4, timestamp=900, leader_epoch=1),
            800: PartitionOffset(offset=3, timestamp=850, leader_epoch=1),
            10_000: PartitionOffset(offset=-1, timestamp=-1, leader_epoch=-1),
        }
        (answer,) = await list_offsets(await harness.connect(), [(0, timestamp)], version)
        assert (answer.error_code, answer.offset, answer.timestamp) == expected


async def test_list_offsets_refuses_invalid_requests() -> None:
    async with running_gateway() as harness:
        await harness.topic("t", 2)
        client = await harness.connect()
        answers = await list_offsets(client, [(0, -1), (1, -1), (1, -2), (5, -1)])
        codes = [answer.error_code for answer in answers]
        assert codes == [
            0,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
            ErrorCode.unknown_topic_or_partition,
        ]
        harness.storage.offsets = {-1: PartitionOffset(status=common_pb2.DAMAGED)}
        (answer,) = await list_offsets(client, [(0, -1)])
        assert (answer.error_code, answer.offset) == (ErrorCode.kafka_storage_error, -1)


@pytest.mark.parametrize(
    ("timestamp", "most", "expected"),
    [
        (-1, 10, [5, 2]),
        (-1, 1, [5]),
        (-1, 0, []),
        (-2, 10, [2]),
        (800, 10, [3, 2]),
        (100, 10, []),
        (10_000, 10, [5, 2]),
    ],
)
async def test_version_0_lists_offsets_newest_first(timestamp: int, most: int, expected: list[int]) -> None:
    async with running_gateway() as harness:
        await harness.topic()
        harness.storage.offsets = {
            -1: PartitionOffset(offset=5),
            -2: PartitionOffset(offset=2),
            100: PartitionOffset(offset=2, timestamp=100),
            800: PartitionOffset(offset=3, timestamp=850),
            10_000: PartitionOffset(offset=-1),
        }
        body = b"\xff\xff\xff\xff\0\0\0\1\0\1t\0\0\0\1\0\0\0\0" + timestamp.to_bytes(8, "big", signed=True)
        reply = await (await harness.connect()).call(2, 0, body + most.to_bytes(4, "big"))
        offsets = [int.from_bytes(reply[start : start + 8], "big") for start in range(21, len(reply), 8)]
        assert offsets == expected


async def test_list_offsets_gets_a_retriable_error_if_storage_does_not_answer() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        await produce(client, batch(b"a"))

        async def unavailable(*_: Any, **__: Any) -> Any:
            raise Unavailable("no answer")

        harness.storage.list_offsets = unavailable  # type: ignore[method-assign]
        (answer,) = await list_offsets(client, [(0, -1)])
        assert answer.error_code == ErrorCode.not_leader_or_follower
