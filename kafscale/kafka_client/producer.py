"""An idempotent producer, with one batch in flight per partition."""

import zlib
from collections.abc import Mapping, Sequence
from datetime import timedelta

import trio
from kio.schema.errors import ErrorCode

from kafscale.errors import Unavailable
from kafscale.kafka_client.client import Brokers
from kafscale.kafka_client.leaders import Leaders
from kafscale.kafka_client.requests import INIT_PRODUCER_ID, PRODUCE, Refusal, described
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch

_SEQUENCES = 1 << 31
_BROKER_SHARE = 0.8
"""The part of the time for an answer that the broker may use to store the records."""


def partition_of(key: bytes, partitions: Sequence[int]) -> int:
    """Return the partition of a key as librdkafka chooses it."""
    return partitions[zlib.crc32(key) % len(partitions)]


class Producer:
    """Writes records to one topic. Call `open` first. ``seconds``: how long sending a batch is retried."""

    def __init__(self, brokers: Brokers, topic: str, *, codec: Codec, seconds: float) -> None:
        self._brokers = brokers
        self._topic = topic
        self._codec = codec
        self._leaders = Leaders(brokers, topic, seconds=seconds)
        self._id, self._epoch = -1, -1
        self._sequences: dict[int, int] = {}

    async def open(self) -> list[int]:
        """Get a producer id and return the partitions. Raises Refusal, Unavailable."""
        partitions = await self._leaders.find()
        deadline = self._leaders.deadline()
        values = {"transactional_id": None, "transaction_timeout": timedelta(minutes=1)}
        while True:
            failure: Refusal | Unavailable
            try:
                reply = await self._brokers.ask_any(INIT_PRODUCER_ID, values)
                if reply.error_code is ErrorCode.none:
                    self._id, self._epoch = int(reply.producer_id), int(reply.producer_epoch)
                    return partitions
                failure = Refusal(reply.error_code)
            except Unavailable as error:
                failure = error
            await self._leaders.again(deadline, [failure])

    async def send(self, records: Mapping[int, Sequence[Record]]) -> dict[int, int]:
        """Send one batch per partition, with records whose offsets begin at 0. Returns when all are stored.

        The result is the offset of each batch by partition; -1 if the broker does not know where a repeated one is.

        Retries use the same sequence numbers, so that each batch is stored once. Raises Refusal if a batch is not
        stored, and Unavailable if it may or may not be. Other batches may be stored in both cases.
        """
        unsent = {
            partition: build_batch(
                found,
                base_offset=0,
                codec=self._codec,
                producer_id=self._id,
                producer_epoch=self._epoch,
                base_sequence=self._sequences.get(partition, 0),
            )
            for partition, found in records.items()
        }
        offsets: dict[int, int] = {}
        deadline = self._leaders.deadline()
        while unsent:
            failures: list[Refusal | Unavailable] = []
            async with trio.open_nursery() as nursery:
                for leader, partitions in self._leaders.of(unsent).items():
                    batches = {partition: unsent[partition] for partition in partitions}
                    nursery.start_soon(self._ask, leader, batches, offsets, failures)
            unsent = {partition: batch for partition, batch in unsent.items() if partition not in offsets}
            if unsent:
                await self._leaders.again(deadline, failures)
        for partition, found in records.items():
            self._sequences[partition] = (self._sequences.get(partition, 0) + len(found)) % _SEQUENCES
        return offsets

    async def _ask(
        self, leader: int, batches: Mapping[int, bytes], offsets: dict[int, int], failures: list[Refusal | Unavailable]
    ) -> None:
        """Send batches to a leader, and add the offsets of the stored ones to ``offsets``."""
        parts = tuple({"index": partition, "records": batch} for partition, batch in batches.items())
        values = {
            "transactional_id": None,
            "acks": -1,
            "timeout": timedelta(milliseconds=round(1000 * _BROKER_SHARE * self._brokers.seconds)),
            "topic_data": ({"name": self._topic, "partition_data": parts},),
        }
        try:
            reply = await self._brokers.ask(leader, PRODUCE, values)
        except (Refusal, Unavailable) as error:
            failures.append(error)
            return
        for answer in reply.responses[0].partition_responses:
            if answer.error_code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                offsets[int(answer.index)] = int(answer.base_offset)
            else:
                text = described(answer.error_code, answer.error_message)
                failures.append(Refusal(answer.error_code, f"{self._topic}-{answer.index}: {text}"))
