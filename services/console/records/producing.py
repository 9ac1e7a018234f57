"""Writes one record, as a page asks for it."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from kafscale.clock import wall_clock_ms
from kafscale.kafka_client.client import Brokers
from kafscale.kafka_client.producer import Producer, partition_of
from kafscale.kafka_client.requests import Refusal
from kafscale.records.codecs import Codec
from kafscale.records.record import Record
from services.console.requests import WrongRequest

_MOST_HEADERS = 100


@dataclass(frozen=True, slots=True)
class NewRecord:
    """``partition``: None to choose it by the key, or by chance without one."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def parse_record(body: Mapping[str, Any]) -> NewRecord:
    """Parse the body of a request. Raises WrongRequest."""
    partition = body.get("partition")
    if partition is not None and (type(partition) is not int or not 0 <= partition < 2**31):
        raise WrongRequest("partition is not a number from 0 on")
    headers = body.get("headers", [])
    if not isinstance(headers, list) or len(headers) > _MOST_HEADERS:
        raise WrongRequest(f"headers are not a list of up to {_MOST_HEADERS}")
    return NewRecord(partition, _part(body, "key"), _part(body, "value"), tuple(map(_header, headers)))


def _header(given: Any) -> tuple[str, bytes]:
    if not isinstance(given, dict) or not all(isinstance(given.get(name), str) for name in ("name", "value")):
        raise WrongRequest("a header has a name and a value, which are text")
    _encoded(given["name"])
    return given["name"], _encoded(given["value"])


def _part(body: Mapping[str, Any], name: str) -> bytes | None:
    given = body.get(name)
    if not isinstance(given, dict) or not isinstance(given.get("text", ""), str):
        raise WrongRequest(f"{name} has no text")
    text = given.get("text", "")
    match given.get("form"):
        case "null":
            return None
        case "text":
            return _encoded(text)
        case "json":
            try:
                json.loads(text)
            except (ValueError, RecursionError) as error:
                raise WrongRequest(f"the {name} is not JSON: {error}") from None
            return _encoded(text)
        case "hex":
            try:
                return bytes.fromhex(text)
            except ValueError:
                raise WrongRequest(f"the {name} is not hexadecimal, as in 00 ff 1a") from None
    raise WrongRequest(f"the form of the {name} is not one of text, json, hex, null")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise WrongRequest("the text cannot be encoded as UTF-8") from None


async def produce(brokers: Brokers, topic: str, record: NewRecord, *, seconds: float) -> tuple[int, int]:
    """Store a record, and return its partition and offset.

    Raises Refusal if it is not stored, and Unavailable if it may be.
    """
    producer = Producer(brokers, topic, codec=Codec.NONE, seconds=seconds)
    partitions = await producer.open()
    place = record.partition
    if place is None:
        place = random.choice(partitions) if record.key is None else partition_of(record.key, partitions)  # noqa: S311
    if place not in partitions:
        raise Refusal(ErrorCode.unknown_topic_or_partition, f"The topic {topic} has no partition {place}.")
    sent = Record(0, wall_clock_ms(), record.key, record.value, record.headers)
    return place, (await producer.send({place: [sent]}))[place]
