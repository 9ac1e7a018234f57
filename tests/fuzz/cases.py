"""The decoders that `tests.fuzz.codecs` tries, each with valid inputs and the errors that it may raise."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Any

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError
from kafscale.kafka import codec, fetch, legacy, produce
from kafscale.kafka.connection import KafkaConnection
from kafscale.process.client_hello import ClientHello
from kafscale.rewritten.keys import parse_rewritten_key
from kafscale.security import bearer, plain, scram
from services.coordinator.subscription import subscribed_topics
from tests.fuzz import hellos
from tests.fuzz.record_cases import Repair, record_cases
from tests.fuzz.requests import FIRST_OF_KIO, Requests, all_versions
from tests.fuzz.stored_cases import stored_cases

Decoder = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Case:
    """``decode`` may raise only ``errors``. ``valid``: inputs that it accepts. ``repair`` makes the checksums of a
    damaged input right, so that what is behind them is reached."""

    name: str
    decode: Decoder
    valid: Sequence[bytes]
    errors: tuple[type[Exception], ...] = (CorruptData,)
    repair: Repair | None = None


@cache
def all_cases() -> tuple[Case, ...]:
    """All cases. Requests have one for each API and version."""
    found = [Case(*each) for each in (*record_cases(), *stored_cases())]
    return (*found, *_messages(), *_requests())


def _messages() -> list[Case]:
    keys = [b"ns/orders/0/segment-00000000000000001000.kfs", b"ns/~intake/4ksrqv5lp2d8/00000000000000000017"]
    keys += [b"ns/~rewritten/orders/2/roots/00000000000000000009-7-4", b"kafscale/ns/groups/7/a%2Fb/offsets/orders/0"]
    first, final = b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL", b"c=biws,r=fyko+d2lbbFgONRv9qkxdawLserver,p=" + b"A" * 44
    return [
        Case("connection", _connection, _frames()),
        Case("sasl plain", plain.parse, [b"\0user\0password", b"user\0user\0p"], (plain.PlainFailed,)),
        Case("sasl bearer", bearer.parse, [b"n,,\x01auth=Bearer abc.def.ghi\x01\x01"], (bearer.BearerFailed,)),
        Case("sasl scram first", partial(_scram, None), [first], (scram.ScramFailed,)),
        Case("sasl scram final", partial(_scram, first), [final], (scram.ScramFailed,)),
        Case("client hello", _client_hello, hellos.valid(), ()),
        Case("subscription", subscribed_topics, [struct.pack(">hih", 1, 1, 6) + b"orders" + bytes(4)]),
        Case("keys", _keys, keys, ()),
    ]


def _requests() -> list[Case]:
    random, requests = Random(0), Requests(("orders", "group-1"))
    cases = []
    for api_key, version in all_versions():
        valid = [requests.body(random, api_key, version) for _ in range(4)]
        cases.append(Case(f"request {api_key} v{version}", _decoder(api_key, version), valid))
    return cases


def _decoder(api_key: int, version: int) -> Decoder:
    if api_key == produce.API_KEY:
        return lambda data: produce.decode_request(memoryview(data), version)
    if api_key == fetch.API_KEY:
        return lambda data: fetch.decode_request(memoryview(data), version)
    decoders: dict[int, Callable[[memoryview, int], Any]] = {
        2: legacy.decode_list_offsets,
        19: legacy.decode_create_topics,
        20: legacy.decode_delete_topics,
        23: legacy.decode_offset_for_leader_epoch,
    }
    if version < FIRST_OF_KIO.get(api_key, 0):
        return lambda data: decoders[api_key](memoryview(data), version)
    return lambda data: codec.decode_request(api_key, version, memoryview(data))


def _frames() -> list[bytes]:
    random, requests = Random(1), Requests(("orders",))
    frames = []
    for api_key, version in all_versions()[::7]:
        frame = requests.frame(random, api_key, version, requests.body(random, api_key, version))
        frames.append(struct.pack(">i", len(frame)) + frame)
    return [*frames, b"".join(frames[:3])]


def _connection(data: bytes) -> None:
    connection = KafkaConnection(
        flexible=codec.is_flexible,
        on_ready=lambda: None,
        on_reply=lambda _, __: None,
        max_request_bytes=1 << 20,
        max_in_flight=4,
        max_in_flight_bytes=1 << 20,
    )
    for start in range(0, len(data), 50):
        connection.receive_data(data[start : start + 50])
        while (request := connection.next_request()) is not None:
            request.slot.reply((b"",))
            connection.data_to_send()


def _client_hello(data: bytes) -> None:
    host = ClientHello().feed(data)
    if hellos.by_byte(data)[0] != host:
        raise KafscaleError(f"the host is {host!r} only if the message arrives at once")


def _scram(first: bytes | None, data: bytes) -> None:
    server = scram.ScramServer(scram.Mechanism.SHA_256, lambda name: scram.decoy(_SHA_256, b"secret", name), "server")
    if first is not None:
        server.respond(first)
    server.respond(data)


_SHA_256 = scram.Mechanism.SHA_256


def _keys(data: bytes) -> None:
    key = data.decode(errors="replace")
    for parse in (
        paths.parse_segment_key,
        paths.parse_catalog_page_key,
        paths.parse_stage_key,
        paths.parse_intake_key,
        paths.parse_backup_key,
        paths.parse_backup_id,
        paths.producer_snapshot_epoch,
        parse_rewritten_key,
    ):
        parse(key)
    paths.parse_group_key("ns", key)
    paths.parse_group_shard_key("ns", key)
    paths.parse_node_id_key("ns", key)
    paths.is_etcd_snapshot_key("ns", key)
    keys = paths.GroupKeys("ns", "a/b")
    keys.parse_offset(key)
    keys.parse_member(key)
    keys.parse_assignments(key)
    if paths.is_topic_name(key) and (key in (".", "..") or not key.isascii() or "/" in key):
        raise KafscaleError(f"{key!r} is no topic name")
