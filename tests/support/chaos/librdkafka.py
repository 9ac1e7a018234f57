"""The librdkafka clients of a chaos run: ``python -m tests.support.chaos.librdkafka produce|read ...``.

They print a line for each event of a record and end when their standard input does.

    produce BOOTSTRAP TOPIC PARTITIONS NAME RATE [SETTING=VALUE ...]
    read BOOTSTRAP TOPIC PARTITIONS REWIND_SECONDS      reads continuously, now and then again from an earlier offset
    reread BOOTSTRAP TOPIC PARTITIONS                   reads everything once, up to the end offsets at its start
    join BOOTSTRAP TOPIC GROUP [SETTING=VALUE ...]      two members of a group that read and commit
"""

import random
import sys
import threading
import time
from collections.abc import Callable

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

_MOST_IN_FLIGHT = 1000
_ASK_SECONDS = 5.0
_FLUSH_SECONDS = 630.0  # longer than the configured delivery timeout
_PAUSE_SECONDS = 0.3
_MEMBERS = 2
_FARTHEST = 2000
"""The most offsets that a reader goes back."""
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_SOON: dict[str, str | int | float | bool] = {"reconnect.backoff.max.ms": 1000, "log_level": 0}


def _tell(*words: object) -> None:
    sys.stdout.write(f"{time.monotonic():.6f} {' '.join(map(str, words))}\n")
    sys.stdout.flush()


def _until_input_ends() -> Callable[[], bool]:
    """Whether standard input has ended."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended.is_set


def _on_error(error: ck.KafkaError) -> None:
    if error.fatal():
        _tell("e", error.str())
    else:
        _tell("n", error.name(), error.str())


def produce(bootstrap: str, topic: str, partitions: int, name: str, rate: int, settings: dict[str, str]) -> None:
    """Produce ``rate`` records a second to each partition in turn until standard input ends, then flush."""
    stopping = _until_input_ends()
    in_flight = 0

    producer = ck.Producer({"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": _on_error, **settings})

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


class _Asker:
    """Requests the ends of the log and reports every answer.

    Uses the admin client, because a consumer's ``get_watermark_offsets`` may wait forever when brokers change.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **_SOON})
        self._topic = topic

    def start(self, partition: int) -> int | None:
        """None without an answer."""
        return self._ask(partition, _EARLIEST, "{} -1")

    def end(self, partition: int) -> int | None:
        return self._ask(partition, _LATEST, "-1 {}")

    def _ask(self, partition: int, spec: OffsetSpec, shown: str) -> int | None:
        asked = time.monotonic()
        (answer,) = self._admin.list_offsets(
            {ck.TopicPartition(self._topic, partition): spec}, request_timeout=_ASK_SECONDS
        ).values()
        try:
            offset: int = answer.result(2 * _ASK_SECONDS).offset
        except (ck.KafkaException, TimeoutError):
            return None
        _tell("w", partition, shown.format(offset), f"{asked:.6f}")
        return offset


def read(bootstrap: str, topic: str, partitions: int, rewind_seconds: float) -> None:
    stopping = _until_input_ends()
    consumer, asker = _consumer(bootstrap), _Asker(bootstrap, topic)
    next_of = dict.fromkeys(range(partitions), 0)
    for partition in next_of:
        _tell("m", partition, 0)
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in next_of])

    def ask() -> None:
        while not stopping():
            for partition in range(partitions):
                asker.end(partition)
                asker.start(partition)
            time.sleep(_PAUSE_SECONDS)

    threading.Thread(target=ask, daemon=True).start()
    dice = random.Random(rewind_seconds)
    rewound = (0, 0)
    rewind_at = time.monotonic() + rewind_seconds
    while not stopping():
        for message in consumer.consume(500, timeout=0.2):
            _got(message)
            if message.error() is None:
                next_of[message.partition() or 0] = (message.offset() or 0) + 1
        # It must first reach the position of its last rewind, so that it keeps up with the others on average.
        if time.monotonic() > rewind_at and next_of[rewound[0]] >= rewound[1]:
            rewind_at = time.monotonic() + rewind_seconds
            partition = dice.randrange(partitions)
            rewound = (partition, next_of[partition])
            next_of[partition] = max(0, next_of[partition] - dice.randrange(_FARTHEST))
            _tell("m", partition, next_of[partition])
            consumer.seek(ck.TopicPartition(topic, partition, next_of[partition]))
    consumer.close()


def reread(bootstrap: str, topic: str, partitions: int) -> None:
    consumer, asker = _consumer(bootstrap), _Asker(bootstrap, topic)
    ends = {}
    for partition in range(partitions):
        while (start := asker.start(partition)) is None or (end := asker.end(partition)) is None:
            time.sleep(_PAUSE_SECONDS)
        ends[partition] = end
        _tell("m", partition, start)
    waiting = {partition for partition, end in ends.items() if end}
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in waiting])
    while waiting:
        for message in consumer.consume(1000, timeout=0.5):
            _got(message)
            if message.error() is None and (message.offset() or 0) + 1 >= ends[message.partition() or 0]:
                waiting.discard(message.partition() or 0)
    consumer.close()


def join(bootstrap: str, topic: str, group: str, settings: dict[str, str]) -> None:
    """Run two members with librdkafka's defaults and ``settings``. Any error that reaches a member is reported.

    With ``enable.auto.commit`` librdkafka alone commits and retries failed commits.
    """
    stopping = _until_input_ends()

    def committed(error: ck.KafkaError | None, offsets: list[ck.TopicPartition]) -> None:
        for each in offsets:
            if error is None and each.error is None and each.offset >= 0:
                _tell("c", each.partition, each.offset)

    given = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "log_level": 0,
        "error_cb": _on_error,
        "on_commit": committed,
        **settings,
    }
    members = [ck.Consumer(given) for _ in range(_MEMBERS)]
    for number, member in enumerate(members):
        changed = {
            "on_assign": lambda _, given, number=number: _tell("g", number, len(given)),
            "on_revoke": lambda _, taken, number=number: _tell("g", number, -len(taken)),
        }
        member.subscribe([topic], **changed)
    while not stopping():
        for member in members:
            messages = member.consume(500, timeout=0.1)
            for message in messages:
                _got(message)
                if (error := message.error()) is not None:
                    _tell("e", error.str())
            if messages and "enable.auto.commit" not in settings:
                member.commit(asynchronous=False)
    for member in members:
        member.close()


def main() -> None:
    command, bootstrap, topic, *more = sys.argv[1:]
    if command == "join":
        join(bootstrap, topic, more[0], dict(text.split("=", 1) for text in more[1:]))
        return
    partitions, *rest = more
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
