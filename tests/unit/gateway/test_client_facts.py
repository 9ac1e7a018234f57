"""Requirements of real clients on a broker, with a test for each one that no other test covers."""

from typing import Any
from uuid import UUID

import pytest

from kafscale import paths
from services.gateway.clients.registry import APIS
from tests.support.gateway.asking import parts, produce
from tests.support.gateway.exchanges import SECONDS_5, nested
from tests.support.gateway.harness import NAMESPACE, Client, batch, running_gateway
from tests.unit.gateway.test_configs import BROKER, SET, change, describe
from tests.unit.gateway.test_topics import create, list_offsets, metadata, metadata_by_id, topic

GROUP = 32
UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_CONFIG, UNKNOWN_TOPIC_ID = 3, 17, 40, 100


@pytest.mark.parametrize("version", APIS[22].versions)
async def test_every_client_gets_its_own_producer_id(version: int) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        had = {"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}
        got = [
            await client.ask(22, version, transactional_id=None, transaction_timeout=SECONDS_5, **had) for _ in range(2)
        ]
        assert [(each.error_code, each.producer_epoch) for each in got] == [(0, 0), (0, 0)]
        assert got[0].producer_id != got[1].producer_id


async def test_the_versions_that_librdkafka_requires_for_batches_are_advertised() -> None:
    async with running_gateway() as harness:
        reply = await (await harness.connect()).ask(18, 0)
        ranges = {api.api_key: range(api.min_version, api.max_version + 1) for api in reply.api_keys}
        assert 3 in ranges[0]
        assert 4 in ranges[1]


async def by_id(client: Client, topic_id: bytes) -> Any:
    (described,) = (await metadata_by_id(client, [(None, UUID(bytes=topic_id))], 12)).topics
    return described


async def test_a_topic_keeps_its_id_and_a_recreated_one_gets_another() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        (made,) = (await create(client, topic("t"))).topics
        old = harness.catalog.view.by_name["t"]
        assert made.topic_id.bytes == old.id
        assert await _through(client, old.id) == (0, 0)
        await create_more_partitions(client)
        assert harness.catalog.view.by_name["t"].id == old.id
        assert (await by_id(client, old.id)).name == "t"
        await harness.catalog.mark_deleting("t")
        assert (await by_id(client, old.id)).error_code == UNKNOWN_TOPIC_ID
        await harness.catalog.finish_delete("t", old.id, 5, deleter=paths.member_key(NAMESPACE, "storage", "storage"))
        (again,) = (await create(client, topic("t"))).topics
        assert again.topic_id.bytes not in (old.id, bytes(16))
        assert await _through(client, old.id) == (UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_ID)
        assert await _through(client, again.topic_id.bytes) == (0, 0)


async def create_more_partitions(client: Client) -> None:
    requested = nested(37, 3, "CreatePartitionsTopic")(name="t", count=2, assignments=None)
    reply = await client.ask(37, 3, topics=(requested,), timeout=SECONDS_5, validate_only=False)
    assert reply.results[0].error_code == 0


async def _through(client: Client, topic_id: bytes) -> tuple[int, int]:
    """Return the errors of a Produce and a Fetch that name a topic by this id."""
    produced = await produce(client, batch(b"v"), version=13, topic_id=topic_id)
    requested = nested(1, 13, "FetchTopic")(
        topic_id=UUID(bytes=topic_id),
        partitions=(nested(1, 13, "FetchPartition")(partition=0, fetch_offset=0, partition_max_bytes=1000),),
    )
    values = {"max_wait": SECONDS_5, "min_bytes": 1, "max_bytes": 1000, "replica_id": -1, "forgotten_topics_data": ()}
    reply = await client.ask(1, 13, topics=(requested,), session_id=0, session_epoch=-1, **values)
    (fetched,) = parts(reply)
    return int(produced.error_code), int(fetched.error_code)


@pytest.mark.parametrize("version", [5, 6, 7])
async def test_configs_of_created_topics_are_a_list_and_unknown_ones_are_refused(version: int) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        config = nested(19, version, "CreatableTopicConfig")
        requested = [("good", ()), ("a b", ()), ("wrong", (config(name="no.such.config", value="1"),))]
        topics = tuple(
            nested(19, version, "CreatableTopic")(
                name=name, num_partitions=1, replication_factor=1, assignments=(), configs=configs
            )
            for name, configs in requested
        )
        reply = await client.ask(19, version, topics=topics, timeout=SECONDS_5, validate_only=False)
        good, illegal, wrong = reply.topics
        assert [int(each.error_code) for each in (good, illegal, wrong)] == [0, INVALID_TOPIC, INVALID_CONFIG]
        assert good.configs
        assert illegal.configs == wrong.configs == ()


@pytest.mark.parametrize("name", ["a b", "", "..", "x" * 250, "é"])
async def test_an_illegal_topic_name_is_error_17_in_every_api(name: str) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        assert (await create(client, topic(name))).topics[0].error_code == INVALID_TOPIC
        for version in APIS[3].versions:
            if version < 10:
                assert (await metadata(client, [name], version)).topics[0].error_code == INVALID_TOPIC
        assert (await metadata_by_id(client, [(name, None)], 12)).topics[0].error_code == INVALID_TOPIC
        assert (await describe(client, name)).error_code == INVALID_TOPIC
        assert (await change(client, ("retention.ms", SET, "5"), name=name)).error_code == INVALID_TOPIC
        requested = (nested(75, 0, "TopicRequest")(name=name),)
        reply = await client.ask(75, 0, topics=requested, response_partition_limit=100, cursor=None)
        assert reply.topics[0].error_code == INVALID_TOPIC
        assert not harness.catalog.view.by_name


async def test_the_ends_of_a_log_reflect_committed_records() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        await produce(client, batch(b"a", b"b", b"c"))
        answers = [(await list_offsets(client, [(0, timestamp)], version)) for timestamp, version in ((-1, 1), (-2, 1))]
        assert [each.offset for (each,) in answers] == [3, 0]


async def test_brokers_are_described_with_the_configs_that_clients_read() -> None:
    async with running_gateway(auto_create_partitions=3) as harness:
        client = await harness.connect()
        names = ("advertised.listeners", "num.partitions", "default.replication.factor")
        described = await describe(client, "0", *names, kind=BROKER, synonyms=True)
        values = {config.name: config.value for config in described.configs}
        address = f"PLAINTEXT://127.0.0.1:{harness.listeners[0].port}"
        assert values == {
            "advertised.listeners": address,
            "num.partitions": "3",
            "default.replication.factor": "1",
        }
        assert all(config.synonyms for config in described.configs)
        group = await describe(client, "g", kind=GROUP)
        assert (group.error_code, group.configs) == (0, ())


async def test_configs_can_be_changed_after_describe_cluster_as_the_first_call() -> None:
    async with running_gateway() as harness:
        await harness.topic("t", retention_ms="1000")
        client = await harness.connect()
        reply = await client.ask(60, 0, include_cluster_authorized_operations=False)
        assert (reply.error_code, [broker.broker_id for broker in reply.brokers]) == (0, [reply.controller_id])
        assert (await change(client, ("flush.ms", SET, "7"))).error_code == 0
        assert harness.catalog.view.by_name["t"].configs == {"retention.ms": "1000", "flush.ms": "7"}


@pytest.mark.parametrize("auto_create", [False, True])
async def test_topics_are_created_automatically_as_configured(auto_create: bool) -> None:
    async with running_gateway(auto_create_topics=auto_create, auto_create_partitions=4) as harness:
        (described,) = (await metadata(await harness.connect(), ["new"])).topics
        assert described.error_code == (0 if auto_create else UNKNOWN_TOPIC)
        assert len(described.partitions) == (4 if auto_create else 0)


async def test_every_reply_with_a_broker_has_the_advertised_address() -> None:
    listeners, advertised = "PLAINTEXT://127.0.0.1:0", "PLAINTEXT://kafka.example:19092"
    async with running_gateway(listeners=listeners, advertised_listeners=advertised) as harness:
        address = ("kafka.example", 19092)
        client = await harness.connect()
        found = [
            *(await metadata(client, [])).brokers,
            *(await client.ask(60, 0, include_cluster_authorized_operations=False)).brokers,
            await client.ask(10, 3, key="g", key_type=0),
        ]
        assert [(each.host, each.port) for each in found] == [address] * 3
