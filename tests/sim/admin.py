"""Simulated administration: topics are made, deleted and made again, and records deleted, by Kafka's requests."""

import uuid
from collections.abc import Sequence
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale import paths
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.v1.metadata_pb2 import Topic
from tests.sim import wire
from tests.sim.client import ConnectionLost, connected
from tests.sim.services import NAMESPACE
from tests.sim.view import Partition, View

_SECONDS = 3.0


class Admin:
    """``metadata`` only serves to learn the id of a topic whose creation was not answered."""

    def __init__(self, view: View, metadata: MemoryMetadataStore) -> None:
        self._view = view
        self._metadata = metadata

    async def create_topic(self, name: str, partitions: int, *, retention_ms: int = -1) -> list[Partition]:
        """Make a topic, when its name is free, and wait until it is there."""
        former = await self._live_id(name)
        config = wire.part(wire.CREATE_TOPICS, "CreatableTopicConfig", name="retention.ms", value=str(retention_ms))
        topic = wire.part(
            wire.CREATE_TOPICS,
            "CreatableTopic",
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=(config,),
        )
        body = wire.request(wire.CREATE_TOPICS, topics=(topic,), timeout=wire.milliseconds(2000), validate_only=False)
        while (topic_id := await self._live_id(name)) is None or topic_id == former:
            await self._asked(wire.CREATE_TOPICS, body)
            await trio.sleep(0.2)
        self._view.trace("admin", f"topic {name} is there as {topic_id.hex()[:6]}")
        made = [Partition(name, topic_id, index, retention_ms=retention_ms) for index in range(partitions)]
        for partition in made:
            self._view.add(partition)
        return made

    async def delete_topic(self, partitions: Sequence[Partition]) -> None:
        """Delete the topic that these are the partitions of; its name is free some time later."""
        name, topic_id = partitions[0].topic, partitions[0].topic_id
        self._view.trace("admin", f"delete topic {name} {topic_id.hex()[:6]}")
        for partition in partitions:
            partition.doomed = True
        state = wire.part(wire.DELETE_TOPICS, "DeleteTopicState", name=None, topic_id=uuid.UUID(bytes=topic_id))
        body = wire.request(wire.DELETE_TOPICS, topics=(state,), timeout=wire.milliseconds(2000))
        while await self._live_id(name) == topic_id:
            await self._asked(wire.DELETE_TOPICS, body)
            await trio.sleep(0.1)
        await trio.sleep(self._view.faults.between(0.0, 1.0))
        for partition in partitions:
            partition.gone = True

    async def delete_records(self, partition: Partition, offset: int) -> None:
        """Once, whatever comes of it."""
        self._view.truncates(partition, offset)
        self._view.trace("admin", f"delete records of {partition.log} below {offset}")
        asked_for = wire.part(
            wire.DELETE_RECORDS, "DeleteRecordsPartition", partition_index=partition.index, offset=offset
        )
        topic = wire.part(wire.DELETE_RECORDS, "DeleteRecordsTopic", name=partition.topic, partitions=(asked_for,))
        body = wire.request(wire.DELETE_RECORDS, topics=(topic,), timeout=wire.milliseconds(2000))
        asked = trio.current_time()
        answer = await self._asked(wire.DELETE_RECORDS, body)
        if answer is None or partition.doomed:
            return
        result = answer.topics[0].partitions[0]
        self._view.trace(
            "admin", f"records of {partition.log} deleted: {result.error_code.name} {result.low_watermark}"
        )
        if result.error_code is ErrorCode.none:
            self._view.ends(partition, start=int(result.low_watermark), end=-1, asked=asked)

    async def _asked(self, api_key: int, body: bytes) -> Any:
        try:
            async with connected(self._view.gateways, self._view.faults) as connection:
                return wire.response(api_key, await connection.ask(api_key, body, timeout=_SECONDS))
        except* ConnectionLost:
            pass
        return None

    async def _live_id(self, name: str) -> bytes | None:
        item = await self._metadata.get(paths.topic_key(NAMESPACE, name))
        topic = Topic() if item is None else Topic.FromString(item.value)
        return topic.id if topic.id and topic.state == Topic.LIVE else None
