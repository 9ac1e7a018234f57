"""A task's part of a write: encodes its rows, and stages them with any storage instances, invisible to readers."""

import secrets
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from kafscale.records.codecs import Codec, codec_by_name
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import Stage, StageRequest, TopicDescription
from kafscale_spark.client import Client
from kafscale_spark.encode import Chunk, Encoder, Memory
from kafscale_spark.sink.calls import StageCalls, find_topic
from kafscale_spark.sink.columns import WrongRows, rows_by_topic
from kafscale_spark.sink.options import SinkOptions
from kafscale_spark.sink.staged import Staged, Target
from kafscale_spark.workers import begin_task

_USUAL_MOST = 1 << 20


def stage_rows(batches: Iterable[pa.RecordBatch], target: Target, options: SinkOptions) -> Staged:
    """Encode and stage all rows, and return when storage has all of them."""
    begin_task()
    with Client(options.connection) as client, _Uploads(client, target, options) as uploads:
        topics = _Topics(client, options)
        for batch in batches:
            for name, rows in rows_by_topic(batch, options.topic):
                topics.feed(name, rows, uploads)
        topics.finish(uploads)
        stages = uploads.finish()
        return Staged(target, tuple(stage.SerializeToString() for stage in stages), client.endpoints)


class _Topics:
    """The topics of a task's rows, each with an encoder. The encoders share one memory."""

    def __init__(self, client: Client, options: SinkOptions) -> None:
        self._client = client
        self._options = options
        self._memory = Memory(options.memory_bytes)
        self._ids: dict[str, bytes] = {}
        self._encoders: dict[str, Encoder] = {}

    def feed(self, name: str, rows: pa.RecordBatch, uploads: "_Uploads") -> None:
        encoder = self._encoders.get(name) or self._new_encoder(name)
        try:
            for chunk in encoder.feed(rows):
                self._send(chunk, uploads)
        except (ValueError, TypeError) as error:
            raise WrongRows(f"topic {name}: {error}") from error

    def finish(self, uploads: "_Uploads") -> None:
        for encoder in self._encoders.values():
            for chunk in encoder.finish():
                self._send(chunk, uploads)

    def _new_encoder(self, name: str) -> Encoder:
        description = find_topic(self._client, name)
        if description is None:
            raise WrongRows(f"topic {name} does not exist; create it first")
        self._ids[name] = description.id
        self._encoders[name] = encoder = _encoder(description, self._options, self._memory)
        return encoder

    def _send(self, chunk: Chunk, uploads: "_Uploads") -> None:
        ref = PartitionRef(topic=chunk.topic, topic_id=self._ids[chunk.topic], partition=chunk.partition)
        uploads.send(ref, chunk.data)


def _encoder(topic: TopicDescription, options: SinkOptions, memory: Memory) -> Encoder:
    """Return the encoder of a topic's rows, within the limits of the topic."""
    name = topic.configs.get("compression.type", "") if options.compression == "topic" else options.compression
    return Encoder(
        topic.name,
        topic.partitions,
        memory=memory,
        max_message_bytes=int(topic.configs.get("max.message.bytes", _USUAL_MOST)),
        compression=codec_by_name(name) or Codec.NONE,
        batch_bytes=options.batch_bytes,
        chunk_bytes=options.stage_bytes,
        # Rows without keys begin at a random partition; otherwise short tasks would all fill the same one.
        seed=secrets.randbelow(1 << 31),
    )


class _Uploads:
    """Sends at most ``uploads`` stages at a time, and blocks if there are more."""

    def __init__(self, client: Client, target: Target, options: SinkOptions) -> None:
        self._client = client
        self._target = target
        self._options = options
        self._opened = ExitStack()
        self._calls: StageCalls | None = None
        self._pool = ThreadPoolExecutor(options.uploads, thread_name_prefix="kafscale-stage")
        self._pending: deque[Future[Stage]] = deque()
        self._stages: list[Stage] = []

    def __enter__(self) -> "_Uploads":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._opened.close()

    def send(self, partition: PartitionRef, data: bytes) -> None:
        """Send whole batches, to be appended after those sent before."""
        request = StageRequest(sink=self._target.sink, epoch=self._target.epoch, partition=partition, records=data)
        while len(self._pending) >= self._options.uploads:
            self._await_oldest()
        if self._calls is None:
            # Opened late, because by now the client knows all instances.
            connection = replace(self._client.connection, endpoints=self._client.endpoints)
            self._calls = self._opened.enter_context(StageCalls.open(connection, self._options.uploads))
        self._pending.append(self._pool.submit(self._calls.stage, request))

    def finish(self) -> list[Stage]:
        """Return all stages, in the order in which they were sent."""
        while self._pending:
            self._await_oldest()
        return self._stages

    def _await_oldest(self) -> None:
        self._stages.append(self._pending.popleft().result())
