"""The librdkafka clients of a chaos run: ``python -m tests.chaos.librdkafka produce|read ...`` (see ``history.py``).

Both print one line for whatever happens to a record and end when their standard input does.

    produce BOOTSTRAP TOPIC PARTITIONS NAME RATE [SETTING=VALUE ...]
    read BOOTSTRAP TOPIC PARTITIONS REWIND_SECONDS      reads on, and now and then again from an earlier offset
    reread BOOTSTRAP TOPIC PARTITIONS                   reads everything once, up to the ends that it is told at first
"""

import random
import sys
import threading
import time
from collections.abc import Callable

import confluent_kafka as ck

_MOST_IN_FLIGHT = 1000
_ASK_SECONDS = 5.0
_FLUSH_SECONDS = 330.0  # longer than librdkafka's delivery timeout
_SOON = {"reconnect.backoff.max.ms": 1000, "log_level": 0}


def _tell(*words: object) -> None:
    sys.stdout.write(f"{time.monotonic():.6f} {' '.join(map(str, words))}\n")
    sys.stdout.flush()


def _until_input_ends() -> Callable[[], bool]:
    """Whether standard input has ended yet."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended.is_set


def produce(bootstrap: str, topic: str, partitions: int, name: str, rate: int, settings: dict[str, str]) -> None:
    """``rate`` records a second, each partition in turn, until standard input ends; then wait for what is under way."""
    stopping = _until_input_ends()
    in_flight = 0

    def on_error(error: ck.KafkaError) -> None:
        if error.fatal():
            _tell("e", error.str())

    producer = ck.Producer({"bootstrap.servers": bootstrap, **_SOON, "error_cb": on_error, **settings})

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        nonlocal in_flight
        in_flight -= 1
        number = (message.value() or b"").partition(b" ")[0].decode().rpartition("/")[2]
        if error is None:
            _tell("a", message.partition(), number, message.offset())
        else:
            _tell("f", message.partition(), number, error.name(), error.str())

    sizes = random.Random(name)
    number = 0
    due = time.monotonic()
    while not stopping():
        if in_flight < _MOST_IN_FLIGHT:
            for partition in range(partitions):
                _tell("s", partition, number)
                value = f"{name}/{partition}/{number} {'.' * sizes.randrange(600)}"
                in_flight += 1
                producer.produce(topic, value=value, partition=partition, on_delivery=delivered)
            number += 1
        due = max(due, time.monotonic() - 1) + partitions / rate
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        producer.poll(0)
    if producer.flush(_FLUSH_SECONDS):
        _tell("e", f"{in_flight} records neither acked nor failed in {_FLUSH_SECONDS:g} s")


def _consumer(bootstrap: str) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            **_SOON,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "enable.partition.eof": False,
        }
    )


def _got(message: ck.Message) -> None:
    error = message.error()
    if error is None:
        name = (message.value() or b"").partition(b" ")[0].decode(errors="backslashreplace")
        _tell("r", message.partition(), message.offset(), name)
    elif error.fatal() or error.code() in (ck.KafkaError._AUTO_OFFSET_RESET, ck.KafkaError.OFFSET_OUT_OF_RANGE):
        _tell("e", error.str())


def _watermarks(consumer: ck.Consumer, topic: str, partition: int) -> tuple[int, int] | None:
    """Asked of the broker; None where it did not answer."""
    asked = time.monotonic()
    try:
        marks: tuple[int, int] | None = consumer.get_watermark_offsets(
            ck.TopicPartition(topic, partition), _ASK_SECONDS
        )
    except ck.KafkaException:
        return None
    if marks is not None:
        _tell("w", partition, *marks, f"{asked:.6f}")
    return marks


def read(bootstrap: str, topic: str, partitions: int, rewind_seconds: float) -> None:
    stopping = _until_input_ends()
    consumer = _consumer(bootstrap)
    asker = _consumer(bootstrap)
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(partitions)])
    for partition in range(partitions):
        _tell("m", partition, 0)
    next_of = dict.fromkeys(range(partitions), 0)
    dice = random.Random(rewind_seconds)
    rewind_at = time.monotonic() + rewind_seconds

    def ask() -> None:
        partition = 0
        while not stopping():
            _watermarks(asker, topic, partition)
            partition = (partition + 1) % partitions
            time.sleep(0.3)

    threading.Thread(target=ask, daemon=True).start()
    while not stopping():
        for message in consumer.consume(500, timeout=0.2):
            _got(message)
            if message.error() is None:
                next_of[message.partition() or 0] = (message.offset() or 0) + 1
        if time.monotonic() > rewind_at:
            rewind_at = time.monotonic() + rewind_seconds
            partition = dice.randrange(partitions)
            # Not too far: it has to come back to the end, while others go on there.
            next_of[partition] = max(0, next_of[partition] - dice.randrange(5000))
            _tell("m", partition, next_of[partition])
            consumer.assign([ck.TopicPartition(topic, *position) for position in next_of.items()])
    consumer.close()


def reread(bootstrap: str, topic: str, partitions: int) -> None:
    consumer = _consumer(bootstrap)
    ends = {}
    for partition in range(partitions):
        while (marks := _watermarks(consumer, topic, partition)) is None:
            pass
        ends[partition] = marks[1]
        _tell("m", partition, marks[0])
    waiting = {partition for partition, end in ends.items() if end}
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in waiting])
    while waiting:
        for message in consumer.consume(1000, timeout=0.5):
            _got(message)
            if (message.offset() or 0) + 1 >= ends[message.partition() or 0]:
                waiting.discard(message.partition() or 0)
    consumer.close()


def main() -> None:
    command, bootstrap, topic, partitions, *rest = sys.argv[1:]
    if command == "produce":
        name, rate, *settings = rest
        given = dict(text.split("=", 1) for text in settings)
        produce(bootstrap, topic, int(partitions), name, int(rate), given)
    elif command == "read":
        read(bootstrap, topic, int(partitions), float(rest[0]))
    else:
        reread(bootstrap, topic, int(partitions))


if __name__ == "__main__":
    main()
