"""The attacks on the Kafka ports: before and after authentication."""

import struct
from base64 import b64encode
from contextlib import AsyncExitStack
from random import Random

import trio

from tests.fuzz import hellos
from tests.fuzz.broker import PASSWORD, TOPICS, USER, Attacked
from tests.fuzz.mutation import chosen, mutated
from tests.fuzz.network import answer, check_replies, connect, send_in_pieces
from tests.fuzz.records import batches, bombs, resealed
from tests.fuzz.requests import Requests, all_versions
from tests.support.gateway.harness import request

_NAMES = (
    *TOPICS,
    *TOPICS,
    "absent",
    "group-1",
    "group-2",
    "retention.ms",
    "range",
    "consumer",
    "",
    "..",
    "a/b",
    "a\nb",
)
_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = 18, 17, 36
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "", "plain", "\x00\n")
_HALF_OPEN = 150


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


async def tls(target: Attacked, random: Random) -> None:
    """Handshakes that are damaged, slow, abandoned, of other protocols, or followed by damaged records."""
    port = random.choice(("SSL", "SASL_SSL"))
    kind = random.random()
    if kind < 0.02:
        await _half_open(target, port)
    elif kind < 0.8:
        async with await connect(target, port) as stream:
            sources = (*hellos.valid(), b"GET / HTTP/1.1\r\n\r\n", sized(bytes(20)))
            await send_in_pieces(stream, random, chosen(random, sources))
            await answer(stream)
            await send_in_pieces(stream, random, chosen(random, (b"\x17\x03\x03\x00\x20" + bytes(32), *sources)))
            await answer(stream)
    else:
        plain = await connect(target, port)
        secured = trio.SSLStream(plain, target.trusting(), server_hostname="127.0.0.1", https_compatible=True)
        await secured.do_handshake()
        await secured.send_all(_frames(target, random))
        await answer(secured)
        await plain.send_all(chosen(random, (b"\x17\x03\x03\x00\x20" + bytes(32), b"\x15\x03\x03\x00\x02\x02\x28")))
        await trio.aclose_forcefully(plain)


async def _half_open(target: Attacked, port: str) -> None:
    async with AsyncExitStack() as streams:
        for _ in range(_HALF_OPEN):
            await streams.enter_async_context(await connect(target, port))
        await trio.sleep(1)


async def sasl(target: Attacked, random: Random) -> None:
    """Requests of clients that are not authenticated: sequences and messages that no client sends."""
    async with await connect(target, "SASL_PLAINTEXT") as stream:
        sent = bytearray()
        received = bytearray()
        for _ in range(random.randint(1, 5)):
            frames = _sasl_frames(random, bytes(received))
            sent += frames
            await send_in_pieces(stream, random, frames)
            received += await answer(stream)
        check_replies(bytes(sent), bytes(received))


def _sasl_frames(random: Random, received: bytes) -> bytes:
    mechanism = random.choice(_MECHANISMS[:3] if random.random() < 0.8 else _MECHANISMS)
    message = random.choice(
        (b"n,,n=admin,r=fyko", _plain(), _final(received), b"n,,\x01auth=Bearer a.b.c\x01\x01", b"")
    )
    if random.random() < 0.7:
        message = mutated(random, message, most=60_000)
    bodies = [
        (_API_VERSIONS, 3, request(18, 3, client_software_name="fuzz", client_software_version="1")),
        (_HANDSHAKE, 1, request(17, 1, mechanism=mechanism)),
        (_HANDSHAKE, 1, request(17, 1, mechanism=mechanism)),
        *((_AUTHENTICATE, version, request(36, version, auth_bytes=message)) for version in (0, 1, 2, 2)),
        (3, 1, request(3, 1, topics=None)),
    ]
    frames = []
    for key, version, body in random.choices(bodies, k=random.choice((1, 1, 2, 3))):
        damaged = mutated(random, body, most=60_000) if random.random() < 0.3 else body
        frames.append(sized(_REQUESTS.frame(random, key, version, damaged)))
    joined = b"".join(frames)
    return mutated(random, joined, most=60_000) if random.random() < 0.1 else joined


def _plain() -> bytes:
    return f"\x00{USER}\x00{PASSWORD}".encode()


def _final(received: bytes) -> bytes:
    """Return a last message of SCRAM with the nonce that the process has sent, if it has, and a wrong proof."""
    start = received.rfind(b"r=fyko")
    nonce = received[start : received.find(b",", start)] if start >= 0 else b"r=fyko"
    return b"c=biws," + nonce + b",p=" + b64encode(bytes(32))


async def kafka(target: Attacked, random: Random) -> None:
    """Requests of all APIs, most of them damaged, several on a connection."""
    async with await connect(target, "PLAINTEXT") as stream:
        sent = _frames(target, random)
        await send_in_pieces(stream, random, sent)
        check_replies(sent, await answer(stream))


_REQUESTS = Requests(_NAMES)


def _frames(target: Attacked, random: Random) -> bytes:
    requests = Requests(_NAMES, target.topic_ids)
    frames = []
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        if random.random() < 0.25:
            key, version, body = 0, 8, _produce(random)
        else:
            key, version = random.choice(all_versions())
            body = requests.body(random, key, version)
            if random.random() < 0.7:
                body = mutated(random, body, most=1 << 20)
        frame = requests.frame(random, key, version, body)
        if random.random() < 0.05:
            frame = mutated(random, frame)
        frames.append(sized(frame))
    joined = b"".join(frames)
    return mutated(random, joined) if random.random() < 0.05 else joined


def _produce(random: Random) -> bytes:
    """Return a Produce request with damaged, huge or deceptive records for a topic that exists."""
    kind = random.random()
    if kind < 0.4:
        records = random.choice(bombs())
    elif kind < 0.6:
        records = mutated(random, random.choice(batches()))
    else:
        records = resealed(mutated(random, random.choice(batches())))
    topic = random.choice(TOPICS).encode()
    head = struct.pack(">hhii", -1, random.choice((-1, -1, 1, 0)), 2000, 1)
    return head + struct.pack(">h", len(topic)) + topic + struct.pack(">iii", 1, 0, len(records)) + records
