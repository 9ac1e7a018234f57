"""Simulated administration with Kafka requests: create, delete and recreate topics, and delete records."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale import paths
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.v1.metadata_pb2 import Topic
from tests.sim import wire
from tests.sim.client import ConnectionLost, connected
from tests.sim.services import NAMESPACE
from tests.sim.settings import TOMBSTONES_KEPT_MS
from tests.sim.view import Compaction, Partition, Retention, View

_SECONDS = 3.0
KEPT = Retention()
_REFUSED = (ErrorCode.offset_out_of_range, ErrorCode.unknown_topic_or_partition, ErrorCode.policy_violation)


class Admin:
    """An administrator. It uses ``metadata`` only for the id of a topic whose creation was not answered."""

    def __init__(self, view: View, metadata: MemoryMetadataStore) -> None:
        self._view = view
        self._metadata = metadata
        # The topic creations and deletions in progress.
        self.under_way: list[str] = []

    async def create_topic(
        self, name: str, partitions: int, retention: Retention = KEPT, compaction: Compaction | None = None
    ) -> list[Partition]:
        """Create a topic as soon as its name is free, and wait until it exists."""
        with self._doing(f"topic {name} is created"):
            topic_id = await self._create(name, partitions, _configs(retention, compaction))
        self._view.trace("admin", f"topic {name} exists with id {topic_id.hex()[:6]}")
        made = [Partition(name, topic_id, index, retention, compaction) for index in range(partitions)]
        for partition in made:
            self._view.add(partition)
        return made

    async def _create(self, name: str, partitions: int, values: Mapping[str, object]) -> bytes:
        former = await self._live_id(name)
        configs = [
            wire.part(wire.CREATE_TOPICS, "CreatableTopicConfig", name=key, value=str(value))
            for key, value in values.items()
        ]
        topic = wire.part(
            wire.CREATE_TOPICS,
            "CreatableTopic",
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=tuple(configs),
        )
        body = wire.request(wire.CREATE_TOPICS, topics=(topic,), timeout=wire.milliseconds(2000), validate_only=False)
        while (topic_id := await self._live_id(name)) is None or topic_id == former:
            await self._asked(wire.CREATE_TOPICS, body)
            await trio.sleep(0.2)
        return topic_id

    async def delete_topic(self, partitions: Sequence[Partition]) -> None:
        """Delete the topic of these partitions. Its name is free some time later."""
        name, topic_id = partitions[0].topic, partitions[0].topic_id
        self._view.trace("admin", f"delete topic {name} {topic_id.hex()[:6]}")
        for partition in partitions:
            partition.condemned = True
        by_name = self._view.faults.dice.random() < 0.5
        state = wire.part(
            wire.DELETE_TOPICS,
            "DeleteTopicState",
            name=name if by_name else None,
            topic_id=uuid.UUID(int=0) if by_name else uuid.UUID(bytes=topic_id),
        )
        body = wire.request(wire.DELETE_TOPICS, topics=(state,), timeout=wire.milliseconds(2000))
        with self._doing(f"topic {name} is deleted"):
            while await self._live_id(name) == topic_id:
                await self._asked(wire.DELETE_TOPICS, body)
                await trio.sleep(0.1)

    async def add_partition(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Add a partition to the topic of these partitions. Return nothing if the topic is deleted meanwhile."""
        first, count = partitions[0], len(partitions) + 1
        self._view.trace("admin", f"raise {first.topic} to {count} partitions")
        topic = wire.part(
            wire.CREATE_PARTITIONS, "CreatePartitionsTopic", name=first.topic, count=count, assignments=None
        )
        body = wire.request(
            wire.CREATE_PARTITIONS, topics=(topic,), timeout=wire.milliseconds(2000), validate_only=False
        )
        with self._doing(f"topic {first.topic} grows"):
            while not first.doomed and await self._partitions_of(first.topic, first.topic_id) < count:
                await self._asked(wire.CREATE_PARTITIONS, body)
                await trio.sleep(0.1)
        if first.doomed or any(
            one.topic_id == first.topic_id and one.index >= len(partitions) for one in self._view.partitions
        ):
            return []
        made = Partition(first.topic, first.topic_id, len(partitions), first.retention, first.compaction)
        self._view.add(made)
        return [made]

    async def is_free(self, name: str) -> bool:
        return await self._metadata.get(paths.topic_key(NAMESPACE, name)) is None

    async def configure(self, topic: str, name: str, value: str) -> bool:
        """Send a single request. Return whether it was executed."""
        self._view.trace("admin", f"{topic}: {name}={value}")
        config = wire.part(wire.ALTER_CONFIGS, "AlterableConfig", name=name, config_operation=0, value=value)
        resource = wire.part(
            wire.ALTER_CONFIGS, "AlterConfigsResource", resource_type=2, resource_name=topic, configs=(config,)
        )
        body = wire.request(wire.ALTER_CONFIGS, resources=(resource,), validate_only=False)
        answer = await self._asked(wire.ALTER_CONFIGS, body)
        if answer is None:
            return False
        error = answer.responses[0].error_code
        self._view.trace("admin", f"{topic}: {error.name}")
        return error is ErrorCode.none

    async def delete_records(self, partition: Partition, offset: int) -> bool:
        """Send a single request. Return whether it was executed."""
        self._view.asks_start(partition, offset)
        self._view.trace("admin", f"delete records of {partition.log} below {offset}")
        asked_for = wire.part(
            wire.DELETE_RECORDS, "DeleteRecordsPartition", partition_index=partition.index, offset=offset
        )
        topic = wire.part(wire.DELETE_RECORDS, "DeleteRecordsTopic", name=partition.topic, partitions=(asked_for,))
        body = wire.request(wire.DELETE_RECORDS, topics=(topic,), timeout=wire.milliseconds(2000))
        asked = trio.current_time()
        answer = await self._asked(wire.DELETE_RECORDS, body)
        if answer is None:
            return False
        result = answer.topics[0].partitions[0]
        self._view.trace(
            "admin", f"records of {partition.log} deleted: {result.error_code.name} {result.low_watermark}"
        )
        if result.error_code in _REFUSED:
            self._view.start_answered(partition, offset, done=False)
        if result.error_code is not ErrorCode.none:
            return False
        self._view.start_answered(partition, offset, done=True)
        if partition.doomed:
            # The answer may be about the next topic of that name.
            return True
        if result.low_watermark < offset:
            self._view.complain("not-deleted", partition, f"asked for {offset}, answered {result.low_watermark}")
        else:
            self._view.ends(partition, start=int(result.low_watermark), end=-1, asked=asked)
        return True

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        self.under_way.append(what)
        yield
        self.under_way.remove(what)

    async def _asked(self, api_key: int, body: bytes) -> Any:
        try:
            async with connected(self._view.gateways, self._view.faults) as connection:
                return wire.response(api_key, await connection.ask(api_key, body, timeout=_SECONDS))
        except* ConnectionLost:
            pass
        return None

    async def _partitions_of(self, name: str, topic_id: bytes) -> int:
        item = await self._metadata.get(paths.topic_key(NAMESPACE, name))
        topic = Topic() if item is None else Topic.FromString(item.value)
        return topic.partitions if topic.id == topic_id else 0

    async def _live_id(self, name: str) -> bytes | None:
        item = await self._metadata.get(paths.topic_key(NAMESPACE, name))
        topic = Topic() if item is None else Topic.FromString(item.value)
        return topic.id if topic.id and topic.state == Topic.LIVE else None


def _configs(retention: Retention, compaction: Compaction | None) -> dict[str, object]:
    configs: dict[str, object] = {"retention.ms": retention.ms, "retention.bytes": retention.bytes}
    if compaction is not None:
        # Everything but the last segment is compacted at once.
        configs |= {"cleanup.policy": "compact", "segment.ms": 1, "min.cleanable.dirty.ratio": 0.01}
        configs["delete.retention.ms"] = TOMBSTONES_KEPT_MS
        if compaction.deletes:
            configs["cleanup.policy"] = "compact,delete"
        else:
            # Without `delete`, these have no effect.
            configs |= {"retention.ms": 1000, "retention.bytes": 2000}
    return configs
