"""Producers that number their records and remember every ack.

With ``idempotent`` they use the client's defaults. Otherwise they send each record once, without retries.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import confluent_kafka as ck

from tests.servers.java import classpath

MOST_IN_FLIGHT = 500
# The delivery timeout of a record, which is much longer than a restart.
GIVE_UP_MS = 20_000
_BURST = 60
_PAUSE_SECONDS = 0.3
"""The pause of a gentle producer after each burst.

It keeps the number of unanswered requests small. With five, idempotent librdkafka producers busy-loop until one is
answered.
"""


class Acks(Protocol):
    """``acked`` maps the number of each acknowledged record to its offset."""

    acked: dict[int, int]


class AckedProducer(Acks, Protocol):
    """A producer that runs until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partition: int, *, idempotent: bool) -> None: ...

    def stop(self) -> None:
        """Stop, and return when every record sent is acknowledged or has failed."""
        ...


class ConfluentAcked:
    """Sends from its own thread with at most `MOST_IN_FLIGHT` unacknowledged records; with ``gentle``, in bursts."""

    def __init__(self, bootstrap: str, topic: str, partition: int, *, idempotent: bool, gentle: bool = False) -> None:
        self.acked: dict[int, int] = {}
        self._address = (bootstrap, topic, partition)
        self._pause = _PAUSE_SECONDS if gentle else 0.0
        once = {"retries": 0, "message.timeout.ms": GIVE_UP_MS}
        self._how: dict[str, bool | int] = {"enable.idempotence": idempotent, **({} if idempotent else once)}
        self._in_flight = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        bootstrap, topic, partition = self._address
        producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                **self._how,
                "acks": "all",
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        number = 0
        while not self._stopping.is_set():
            if self._in_flight == MOST_IN_FLIGHT:
                producer.poll(0.1)
                continue
            producer.produce(topic, value=b"%d" % number, partition=partition, on_delivery=self._delivered)
            self._in_flight += 1
            number += 1
            producer.poll(0)
            if number % _BURST == 0:
                self._stopping.wait(self._pause)
        producer.flush(2 * GIVE_UP_MS / 1000)

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        self._in_flight -= 1
        if error is None:
            self.acked[int(message.value() or b"")] = message.offset() or 0

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class DefaultsAcked:
    """Produces to all partitions with librdkafka's defaults. ``errors`` has all errors reported to the application."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acked: dict[int, int] = {}
        self.errors: list[str] = []
        self._topic = topic
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "error_cb": self._failed})
        self._waiting = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            if self._waiting < MOST_IN_FLIGHT:
                self._producer.produce(self._topic, value=b"%d" % number, on_delivery=self._delivered)
                self._waiting += 1
                number += 1
            self._producer.poll(0.1 if self._waiting == MOST_IN_FLIGHT else 0)
            if number % _BURST == 0:
                self._stopping.wait(_PAUSE_SECONDS)
        self._producer.flush()

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        self._waiting -= 1
        if error is None:
            self.acked[int(message.value() or b"")] = message.offset() or 0
        else:
            self._failed(error)

    def _failed(self, error: ck.KafkaError) -> None:
        self.errors.append(str(error))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class _Subprocess:
    """A program that produces until its standard input ends, and prints "NUMBER OFFSET" for each ack."""

    def __init__(self, command: list[str]) -> None:
        self.acked: dict[int, int] = {}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        if self._process.stdout is None:
            raise RuntimeError("the program was started without a pipe")
        for line in self._process.stdout:
            number, offset = line.split()
            self.acked[int(number)] = int(offset)

    def stop(self) -> None:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the program was started without pipes")
        self._process.stdin.close()
        self._reader.join()
        self._process.stdout.close()
        if self._process.wait() != 0:
            raise RuntimeError(f"{type(self).__name__} ended with status {self._process.returncode}")


class KafkaPythonAcked(_Subprocess):
    """A separate process, because kafka-python leaves sockets of refused connections to the garbage collector."""

    def __init__(self, bootstrap: str, topic: str, partition: int, *, idempotent: bool) -> None:
        how = ["idempotent"] if idempotent else []
        super().__init__(
            [sys.executable, "-m", "tests.clients.kafka_python_acked", bootstrap, topic, str(partition), *how]
        )


class JavaAcked(_Subprocess):
    def __init__(self, bootstrap: str, topic: str, partition: int, *, idempotent: bool) -> None:
        machine = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath("client")]
        settings = ["linger.ms=1", "reconnect.backoff.max.ms=100"]
        if not idempotent:
            settings += ["acks=all", "enable.idempotence=false", "retries=0"]
            settings += [f"delivery.timeout.ms={GIVE_UP_MS}", f"request.timeout.ms={GIVE_UP_MS // 2}"]
        super().__init__([*machine, "kafscale.client.AckedProducer", bootstrap, topic, str(partition), *settings])


PRODUCERS: tuple[type[AckedProducer], ...] = (ConfluentAcked, KafkaPythonAcked, JavaAcked)


@contextmanager
def running_producers(bootstrap: str, topic: str, *, idempotent: bool) -> Iterator[list[AckedProducer]]:
    """Run one producer of each kind. Each uses the partition with its index in the list. All are stopped on exit."""
    producers: list[AckedProducer] = []
    try:
        for partition, kind in enumerate(PRODUCERS):
            producers.append(kind(bootstrap, topic, partition, idempotent=idempotent))
        yield producers
    finally:
        for producer in producers:
            producer.stop()


@contextmanager
def running_defaults(bootstrap: str, topic: str) -> Iterator[DefaultsAcked]:
    producer = DefaultsAcked(bootstrap, topic)
    try:
        yield producer
    finally:
        producer.stop()


def await_acks(producers: Sequence[Acks], more: int, *, timeout: float) -> None:
    """Wait until each producer has ``more`` new acks. Raise TimeoutError after ``timeout`` seconds."""
    targets = [len(producer.acked) + more for producer in producers]
    deadline = time.monotonic() + timeout
    while any(len(producer.acked) < count for producer, count in zip(producers, targets, strict=True)):
        if time.monotonic() > deadline:
            counts = {type(producer).__name__: len(producer.acked) for producer in producers}
            raise TimeoutError(
                f"not {more} more acks for each producer within {timeout} s: {counts}, expected {targets}"
            )
        time.sleep(0.01)
