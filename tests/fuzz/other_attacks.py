"""The attacks on the ports for HTTP and gRPC."""

from functools import cache
from random import Random

import grpc
import trio
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kafscale.rpc import generated
from kafscale.rpc.admin import SERVICE as ADMIN
from kafscale.v1.common_pb2 import PartitionRef
from tests.fuzz.broker import TOPICS, Attacked
from tests.fuzz.messages import Messages
from tests.fuzz.mutation import chosen, mutated
from tests.fuzz.network import Wrong, answer, connect, send_in_pieces
from tests.fuzz.records import batches, bombs

_GET = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
_HTTP = (
    _GET,
    _GET * 50,
    b"GET /metrics HTTP/1.0\r\n\r\n",
    b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"POST /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" + _GET,
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + _GET,
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /\xff%00../\x1b[2J HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://other/readyz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n" + _GET,
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
_CALL_SECONDS = 1.0
_LEFT_OUT = ("FinalizeUpgrade", "DrainInstance", "CancelDrain")
"""Calls that change how the process works, as they are meant to."""
_MESSAGES_OF_STREAM = 20


async def http(target: Attacked, random: Random) -> None:
    """Damaged, smuggled, pipelined, slow and very long requests."""
    async with await connect(target, "http") as stream:
        await send_in_pieces(stream, random, chosen(random, _HTTP))
        received = await answer(stream)
        if received and not received.startswith(b"HTTP/1.1 "):
            raise Wrong(f"an answer that is not HTTP: {received[:80]!r}")
        if b" 500 " in received[:20]:
            raise Wrong("an internal error")


@cache
def _methods() -> tuple[tuple[str, type[Message], bool], ...]:
    services = (generated.SEGMENT_STORAGE, ADMIN)
    return tuple(
        (f"/{service.full_name}/{method.name}", GetMessageClass(method.input_type), method.server_streaming)
        for service in services
        for method in service.methods
        if method.name not in _LEFT_OUT
    )


async def rpc(target: Attacked, random: Random) -> None:
    """Calls of all methods with unusual and damaged messages, and bytes that are not HTTP/2."""
    if random.random() < 0.05:
        async with await connect(target, "rpc") as stream:
            await send_in_pieces(stream, random, mutated(random, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(40)))
            await answer(stream)
        return
    ids = [bytes(16), *target.topic_ids]
    messages = Messages((*TOPICS, "absent", "group-1", "retention.ms", "sink"), (*ids, *batches(), *bombs()[-5:]))
    calls = []
    for _ in range(5):
        path, kind, streams = random.choice(_methods())
        message: Message = messages.random(random, kind)
        for name in ("partition", "partitions", "ref"):
            _aim(random, message, name, target.topic_ids)
        data = message.SerializeToString()
        calls.append((path, mutated(random, data) if random.random() < 0.3 else data, streams))
    await trio.to_thread.run_sync(_called, f"127.0.0.1:{target.ports['rpc']}", calls)


def _aim(random: Random, message: object, name: str, topic_ids: tuple[bytes, ...]) -> None:
    """Let a message refer to a partition that exists, mostly."""
    found = getattr(message, name, None)
    if isinstance(found, PartitionRef) and topic_ids and random.random() < 0.7:
        number = random.randrange(len(topic_ids))
        found.CopyFrom(PartitionRef(topic=TOPICS[number], topic_id=topic_ids[number], partition=0))


def _called(address: str, calls: list[tuple[str, bytes, bool]]) -> None:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 128 << 20)]
    with grpc.insecure_channel(address, options=options) as channel:
        for path, data, streams in calls:
            try:
                if streams:
                    replies = channel.unary_stream(path, None, None)(data, timeout=_CALL_SECONDS)
                    for _, __ in zip(range(_MESSAGES_OF_STREAM), replies, strict=False):
                        pass
                    replies.cancel()  # type: ignore[no-untyped-call]
                else:
                    channel.unary_unary(path, None, None)(data, timeout=_CALL_SECONDS)
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
                    raise Wrong(f"{path}: {error.code()} {error.details()} for {data!r}") from error
