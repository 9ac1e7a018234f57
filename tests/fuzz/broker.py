"""``kafscale run`` in its own process, which is attacked, and what must hold of it meanwhile.

It runs, logs no error and no traceback, stays below a bound of memory, and serves a well-behaved client.
"""

import json
import resource
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import trustme
from kio.index import load_request_schema

from tests.chaos.node import Node
from tests.servers.ports import free_ports
from tests.support.broker import COMMAND
from tests.support.gateway.asking import fetch_body, produce_body
from tests.support.gateway.exchanges import SECONDS_5, nested
from tests.support.gateway.harness import Client, batch, read_response

USER, PASSWORD = "admin", "a password for fuzzers"
WITNESS = "witness"
"""The topic of the well-behaved client."""
TOPICS = ("orders", "compacted")
"""The topics that are attacked."""
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
_START_SECONDS = 60.0
_PATIENCE_SECONDS = 30.0
"""How long the well-behaved client waits for an answer. It is generous, because machines may be slow."""
_PAUSE_SECONDS = 0.2
_LAST_WORDS_SECONDS = 1.0
_MIB = 1 << 20
_MEMORY_LIMITS = {
    "KAFSCALE_REQUEST_MEMORY_BYTES": 64 * _MIB,
    "KAFSCALE_MAX_REQUEST_BYTES": 32 * _MIB,
    "KAFSCALE_REPLY_MEMORY_BYTES": 64 * _MIB,
    "KAFSCALE_UPCONVERT_BYTES": 16 * _MIB,
    "KAFSCALE_APPEND_QUEUE_BYTES": 16 * _MIB,
    "KAFSCALE_BUFFER_BYTES": 64 * _MIB,
    "KAFSCALE_CACHE_SIZE": 32 * _MIB,
    "KAFSCALE_INDEX_CACHE_SIZE": 16 * _MIB,
}
_BASE_MEMORY = 600 * _MIB
"""The interpreter with its modules, and the freed memory that `kafscale.malloc` keeps."""
_SETTINGS = {
    "KAFSCALE_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "KAFSCALE_BOOTSTRAP_USER": USER,
    "KAFSCALE_BOOTSTRAP_PASSWORD": PASSWORD,
    "KAFSCALE_HANDSHAKE_MS": "2000",
    "KAFSCALE_MAX_UNAUTHENTICATED_CONNECTIONS": "100",
    "KAFSCALE_MAX_PARTITIONS_PER_TOPIC": "20",
    "KAFSCALE_AUTO_CREATE_TOPICS": "false",
    # The times of all records are long ago.
    "KAFSCALE_RETENTION_MS": "-1",
}
_SHOWN = 6000
_FAULTS = ("error", "critical")
"""The levels of log lines that no client may be able to cause."""


class WellBehaved(Client):
    """A client that waits for its answers."""

    async def receive_frame(self) -> bytes:
        while len(self._buffer) < 4 or len(self._buffer) < 4 + struct.unpack_from(">i", self._buffer)[0]:
            data = await self.stream.receive_some(65536)
            if not data:
                raise EOFError("the connection was closed")
            self._buffer += data
        return await super().receive_frame()


class Attacked:
    """The running process. ``ports``: by the name of the listener, and ``http`` and ``rpc``."""

    def __init__(self, node: Node, ports: dict[str, int], authority: trustme.CA) -> None:
        self.node = node
        self.ports = ports
        self.served = 0
        """How often the well-behaved client has written and read a record."""
        self.slowest = 0.0
        """The longest time in seconds that this took."""
        self.highest = 0
        """The highest memory that was seen, in bytes."""
        self.topic_ids: tuple[bytes, ...] = ()
        self._authority = authority
        self._position = 0
        self._faults: list[str] = []

    async def new_faults(self) -> list[str]:
        """Return what went wrong since the last call."""
        if not self.node.running:
            # It may still write why.
            await trio.sleep(_LAST_WORDS_SECONDS)
        faults, self._faults = self._faults, []
        faults += self._logged_faults()
        if not self.node.running:
            return [*faults, f"the process ended with status {self.node.status}"]
        memory, most = self._memory(), _BASE_MEMORY + sum(_MEMORY_LIMITS.values())
        self.highest = max(self.highest, memory)
        if memory > most:
            faults.append(f"{memory // _MIB} MiB of memory, more than {most // _MIB} MiB")
        return faults

    def _memory(self) -> int:
        """The resident memory of the process in bytes."""
        pages = int(Path(f"/proc/{self.node.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def _logged_faults(self) -> list[str]:
        with self.node.log.open("rb") as log:
            log.seek(self._position)
            data = log.read()
        # The last line may be incomplete.
        data = data[: data.rfind(b"\n") + 1]
        self._position += len(data)
        found: list[str] = []
        traceback: list[str] = []
        for line in data.decode(errors="replace").splitlines():
            if not line.startswith("{"):
                traceback.append(line)
            elif _is_fault(line):
                found.append(line[:_SHOWN])
        return [*found, "lines that are no JSON:\n" + "\n".join(traceback)[-_SHOWN:]] if traceback else found

    def trusting(self) -> ssl.SSLContext:
        """Return a client's TLS that trusts the certificate of the process."""
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        return context

    async def prepare(self) -> None:
        """Create the topics that are missing, and learn their ids."""
        with trio.fail_after(_START_SECONDS):
            while True:
                try:
                    await self._prepare()
                    return
                except (OSError, EOFError, trio.BrokenResourceError):
                    # A process that did not run for seconds, on a busy machine, closes its connections.
                    await trio.sleep(0.1)

    async def _prepare(self) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", self.ports["PLAINTEXT"]) as stream:
            client = WellBehaved(stream)
            topic, config = nested(19, 5, "CreatableTopic"), nested(19, 5, "CreatableTopicConfig")
            topics = tuple(
                topic(
                    name=name,
                    num_partitions=1,
                    replication_factor=1,
                    assignments=(),
                    configs=(config(name="cleanup.policy", value="compact"),) if name == "compacted" else (),
                )
                for name in (*TOPICS, WITNESS)
            )
            await client.ask(19, 5, topics=topics, timeout=SECONDS_5, validate_only=False)
            fields = load_request_schema(3, 12).__dataclass_fields__
            flags = {name: False for name in fields if name.startswith(("allow", "include"))}
            asked = tuple(nested(3, 12, "MetadataRequestTopic")(name=name, topic_id=None) for name in TOPICS)
            found = (await client.ask(3, 12, topics=asked, **flags)).topics
            self.topic_ids = tuple(each.topic_id.bytes for each in found if each.topic_id is not None)

    async def serve_witness(self) -> None:
        """Write and read records until cancelled, each on a new connection. What fails is a fault."""
        while True:
            began = trio.current_time()
            try:
                with trio.fail_after(_PATIENCE_SECONDS):
                    await self._round_trip()
                self.served += 1
            except Exception as error:  # noqa: BLE001  whatever it is
                self._faults.append(f"a well-behaved client was not served: {error!r}")
            self.slowest = max(self.slowest, trio.current_time() - began)
            await trio.sleep(_PAUSE_SECONDS)

    async def _round_trip(self) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", self.ports["PLAINTEXT"]) as stream:
            client, value = WellBehaved(stream), f"record {self.served}".encode()
            body = await client.call(0, 8, produce_body({(WITNESS, 0): batch(value)}, timeout_ms=20_000, version=8))
            (written,) = read_response(0, 8, body).responses[0].partition_responses
            if written.error_code:
                raise RuntimeError(f"records refused: {written.error_code!r} {written.error_message}")
            body = await client.call(1, 4, fetch_body({(WITNESS, 0): written.base_offset}, version=4))
            (read,) = read_response(1, 4, body).responses[0].partitions
            if value not in (read.records or b""):
                raise RuntimeError(f"records not read: {read.error_code!r}")


@asynccontextmanager
async def attacked(directory: Path) -> AsyncIterator[Attacked]:
    """Run the process with one listener of each protocol, with data in ``directory``."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(directory / "key.pem")
    (directory / "cert.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    ports = dict(zip((*LISTENERS, "http", "rpc"), free_ports(len(LISTENERS) + 2), strict=True))
    env = {
        **_SETTINGS,
        **{name: str(value) for name, value in _MEMORY_LIMITS.items()},
        # On a busy machine, taking a partition over takes longer than the default.
        "KAFSCALE_APPEND_LOAD_WAIT_MS": "20000",
        "KAFSCALE_DATA_DIR": str(directory / "data"),
        "KAFSCALE_LISTENERS": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in LISTENERS),
        # Several hosts, so that the name that a client asks for decides which certificate it gets.
        "KAFSCALE_ADVERTISED_LISTENERS": ",".join(
            f"{name}://{'localhost' if name == 'SSL' else '127.0.0.1'}:{ports[name]}" for name in LISTENERS
        ),
        "KAFSCALE_TLS_CERT_FILE": str(directory / "cert.pem"),
        "KAFSCALE_TLS_KEY_FILE": str(directory / "key.pem"),
        "KAFSCALE_HTTP_ADDR": f"127.0.0.1:{ports['http']}",
        "KAFSCALE_RPC_ADDR": f"127.0.0.1:{ports['rpc']}",
        "KAFSCALE_CONSOLE": "false",
    }
    node = Node("attacked", COMMAND, env, directory)
    node.start()
    try:
        target = Attacked(node, ports, authority)
        await _started(target)
        await target.prepare()
        yield target
    finally:
        node.stop()


async def _started(target: Attacked) -> None:
    with trio.fail_after(_START_SECONDS):
        while True:
            try:
                # It is the last thing that starts.
                await trio.aclose_forcefully(await trio.open_tcp_stream("127.0.0.1", target.ports["PLAINTEXT"]))
            except OSError:
                if not target.node.running:
                    raise RuntimeError(f"kafscale run did not start: {target.node.log.read_text()}") from None
                await trio.sleep(0.1)
            else:
                return


def _is_fault(line: str) -> bool:
    """Whether a line of the log reports a defect."""
    entry = json.loads(line)
    return entry.get("level") in _FAULTS or "exception" in entry
