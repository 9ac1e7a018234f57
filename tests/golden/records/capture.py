"""Captures the golden files again: real producers send known records to a listener that keeps the bytes.

    python -m tests.golden.records.capture DIRECTORY

DIRECTORY holds the jars of org.apache.kafka:kafka-clients with lz4-java, snappy-java, zstd-jni and slf4j-nop.
librdkafka is the one inside confluent-kafka. The listener speaks just enough of the protocol for producers to send to
partition 0 of the topic ``golden``: ApiVersions 0, Metadata 0 and 1, Produce 0 to 7. The records are those of known.py.
"""

import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Producer

from kafscale.records.record import Record
from tests.support.golden_records import HERE, RECORDS, without_headers

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
# The brokers that the listener plays. librdkafka chooses its message format and codecs by these ranges, those of
# Fetch (1) and FindCoordinator (10) included.
KAFKA_2_1 = {PRODUCE: (0, 7), 1: (4, 10), METADATA: (0, 1), 10: (0, 0), API_VERSIONS: (0, 0)}
KAFKA_0_10 = {PRODUCE: (0, 2), 1: (0, 2), METADATA: (0, 1), 10: (0, 0), API_VERSIONS: (0, 0)}
UNSUPPORTED_VERSION = 35


class Listener:
    """Takes connections on a port of its own and keeps the record set of each Produce request."""

    def __init__(self, versions: dict[int, tuple[int, int]]) -> None:
        self._versions = versions
        self.record_sets: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                request = stream.read(int.from_bytes(size, "big"))
                key, version, correlation, client = struct.unpack_from(">hhih", request)
                reply = struct.pack(">i", correlation) + self._answer(key, version, request[10 + max(client, 0) :])
                connection.sendall(struct.pack(">i", len(reply)) + reply)

    def _answer(self, key: int, version: int, body: bytes) -> bytes:
        if key == API_VERSIONS:
            ranges = b"".join(struct.pack(">hhh", api, *span) for api, span in self._versions.items())
            return struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(self._versions)) + ranges
        if key == METADATA:
            broker = struct.pack(">ii", 1, 0) + _string("127.0.0.1") + struct.pack(">i", self.port)
            partition = struct.pack(">ihiiiiii", 1, 0, 0, 0, 1, 0, 1, 0)
            if version == 0:
                return broker + struct.pack(">ih", 1, 0) + _string("golden") + partition
            return broker + struct.pack(">hiih", -1, 0, 1, 0) + _string("golden") + b"\0" + partition
        return self._produced(version, body)

    def _produced(self, version: int, body: bytes) -> bytes:
        at = 2 + max(struct.unpack_from(">h", body)[0], 0) if version >= 3 else 0  # the transactional id
        at += 2 + 4 + 4 + 2 + len("golden") + 4  # acks, timeout, topic count, topic, partition count
        partition, size = struct.unpack_from(">ii", body, at)
        self.record_sets.append(body[at + 8 : at + 8 + size])
        reply = struct.pack(">i", 1) + _string("golden") + struct.pack(">iihq", 1, partition, 0, 0)
        reply += struct.pack(">q", -1) if version >= 2 else b""
        reply += struct.pack(">q", 0) if version >= 5 else b""
        return reply + (struct.pack(">i", 0) if version >= 1 else b"")


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _by_librdkafka(port: int, codec: str, records: Iterable[Record], **settings: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "compression.codec": codec,
            "acks": "1",
            "linger.ms": "1000",
            "log_level": "3",
            "batch.size": "4000000",
            **settings,
        }
    )
    for record in records:
        producer.produce(
            "golden", record.value, record.key, 0, timestamp=record.timestamp, headers=list(record.headers) or None
        )
    producer.flush(30)


def _by_java(port: int, codec: str, records: Iterable[Record], jars: Path) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        for record in records:
            fields = [str(record.timestamp), _field(record.key), _field(record.value)]
            for name, value in record.headers:
                fields += (_field(name.encode()), _field(value))
            file.write(" ".join(fields) + "\n")
        file.flush()
        source = str(HERE / "GoldenProducer.java")
        subprocess.run(
            ["java", "-cp", f"{jars}/*", source, f"127.0.0.1:{port}", codec, file.name], check=True, timeout=120
        )


def _field(data: bytes | None) -> str:
    return "null" if data is None else "x" + data.hex()


def main(jars: Path) -> None:
    """Write every golden file; stops when a producer did not send its records as one record set."""
    new, old = Listener(KAFKA_2_1), Listener(KAFKA_0_10)

    def keep(name: str, listener: Listener) -> None:
        (record_set,) = listener.record_sets
        (HERE / f"{name}.bin").write_bytes(record_set)
        listener.record_sets.clear()

    for size, records in RECORDS.items():
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            if size == "large" and codec == "none":
                continue
            _by_librdkafka(new.port, codec, records)
            keep(f"librdkafka-{codec}-{size}", new)
            _by_java(new.port, codec, records, jars)
            keep(f"java-{codec}-{size}", new)
            if codec == "zstd":
                continue
            _by_librdkafka(old.port, codec, without_headers(records))
            keep(f"librdkafka-magic1-{codec}-{size}", old)
            oldest = {"api.version.request": "false", "broker.version.fallback": "0.9.0"}
            _by_librdkafka(old.port, codec, without_headers(records), **oldest)
            keep(f"librdkafka-magic0-{codec}-{size}", old)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
