"""Valid Kafka requests of all APIs and versions of a gateway, made from kio's schemas and KafScale's own encoders."""

import struct
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import cache
from random import Random
from types import NoneType
from typing import Any, cast, get_args
from uuid import UUID

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.kafka.wire import array_length, string
from services.gateway.clients.registry import APIS
from tests.fuzz.records import batches, legacy_sets
from tests.support.strategies.kio_types import written

PRODUCE = 0
# Versions that Kafka 4 removed and kio lacks, with the first version that it has.
FIRST_OF_KIO = {0: 3, 2: 1, 19: 2, 20: 1, 23: 2}
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {"uint16": 16, "uint32": 32}
_LISTED_TWICE = 0.15


@cache
def all_versions() -> tuple[tuple[int, int], ...]:
    """All pairs of API key and version that a gateway supports."""
    return tuple((api.key, version) for api in APIS.values() for version in api.versions)


class Requests:
    """Makes request bodies. ``names`` are used as names of topics, groups and others, ``topic_ids`` as ids."""

    def __init__(self, names: tuple[str, ...], topic_ids: tuple[bytes, ...] = ()) -> None:
        self._names = names
        self._topic_ids = topic_ids

    def body(self, random: Random, api_key: int, version: int) -> bytes:
        """Return the body of a valid request."""
        if version < FIRST_OF_KIO.get(api_key, 0):
            return self._legacy(random, api_key, version)
        schema: Any = load_request_schema(api_key, version)
        return written(self._entity(random, schema))

    def frame(self, random: Random, api_key: int, version: int, body: bytes) -> bytes:
        """Return the request with its header, without the size before it."""
        client = random.choice((*self._names, "fuzz")).encode()
        header = struct.pack(">hhih", api_key, version, random.randint(0, 1 << 30), len(client)) + client
        return header + (b"\0" if codec.is_flexible(api_key, version) else b"") + body

    def _entity(self, random: Random, schema: Any) -> Any:
        return schema(
            **{
                field.name: self._value(random, field.name, field.type, field.metadata.get("kafka_type"))
                for field in fields(schema)
            }
        )

    def _value(self, random: Random, name: str, annotation: Any, kafka_type: str | None) -> Any:
        arguments = get_args(annotation)
        if NoneType in arguments:
            if kafka_type != "uuid" and random.random() < 0.1:
                return None
            return self._value(random, name, next(each for each in arguments if each is not NoneType), kafka_type)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            items = [self._value(random, name, arguments[0], kafka_type) for _ in range(random.choice((0, 1, 1, 1, 2)))]
            return tuple(items * (1 + (random.random() < _LISTED_TWICE)))
        if is_dataclass(annotation):
            return self._entity(random, cast(Any, annotation))
        return self._plain(random, name, kafka_type or "")

    def _plain(self, random: Random, name: str, kafka_type: str) -> Any:
        match kafka_type:
            case "int8" | "int16" | "int32" | "int64":
                half = 1 << (_BITS[kafka_type] - 1)
                common = (0, 0, 0, 1, -1, 2, 100)
                return random.choice((*common, half - 1, -half, random.randrange(-half, half)))
            case "uint16" | "uint32":
                return random.choice((0, 1, (1 << _UNSIGNED[kafka_type]) - 1))
            case "bool":
                return random.random() < 0.5
            case "string":
                return (
                    "1" if name in ("value", "config_value") and random.random() < 0.5 else random.choice(self._names)
                )
            case "bytes":
                return random.choice((b"", random.randbytes(random.randint(0, 60))))
            case "records":
                return random.choice(batches())
            case "error_code":
                return ErrorCode.none
            case "timedelta_i32" | "timedelta_i64":
                return timedelta(milliseconds=random.choice((0, -1, 100, 500, 6000, 30_000)))
            case "float64":
                return random.choice((0.0, -1.0, float("nan"), float("inf")))
            case "uuid":
                known = random.choice((*self._topic_ids, random.randbytes(16)))
                return UUID(bytes=known)
            case _:
                raise ValueError(f"no value for the type {kafka_type} of a newer kio")

    def _legacy(self, random: Random, api_key: int, version: int) -> bytes:
        name = string(random.choice(self._names), flexible=False)
        one = array_length(1, flexible=False)
        index = struct.pack(">i", random.choice((0, 0, 1, -1)))
        match api_key:
            case 0:
                records = random.choice((*batches(), *legacy_sets()))
                head = struct.pack(">hi", random.choice((-1, 0, 1)), 1000)
                return head + one + name + one + index + struct.pack(">i", len(records)) + records
            case 2:
                return struct.pack(">i", -1) + one + name + one + index + struct.pack(">qi", -1, 10)
            case 19:
                topic = name + struct.pack(">ihii", 1, 1, 0, 0)
                return one + topic + struct.pack(">i", 1000) + (b"\0" if version else b"")
            case 20:
                return one + name + struct.pack(">i", 1000)
            case _:
                leader_epoch = struct.pack(">i", 0)
                return one + name + one + index + leader_epoch
