"""The librdkafka clients of a chaos run: ``python -m tests.support.chaos.librdkafka produce|read ...``.

They print a line for each event of a record and end when their standard input does.

    produce BOOTSTRAP TOPICS LOGS NAME RATE KEYS [SETTING=VALUE ...]
    read BOOTSTRAP TOPICS LOGS REWIND_SECONDS           reads continuously, now and then again from an earlier offset
    reread BOOTSTRAP TOPICS LOGS                        reads everything once, up to the end offsets at its start
    join BOOTSTRAP TOPIC GROUP [SETTING=VALUE ...]      two members of a group that read and commit

TOPICS are separated by commas, and LOGS is the number of their partitions (`tests.support.chaos.workload`).
"""

import random
import sys
import threading
import time
from collections.abc import Callable

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.support.chaos.workload import Logs, key_of

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


def produce(bootstrap: str, logs: Logs, name: str, rate: int, keys: int, settings: dict[str, str]) -> None:
    """Produce ``rate`` records a second to each log in turn until standard input ends, then flush."""
    stopping = _until_input_ends()
    in_flight = 0

    producer = ck.Producer({"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": _on_error, **settings})

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        nonlocal in_flight
        in_flight -= 1
        number = (message.value() or b"").partition(b" ")[0].decode().rpartition("/")[2]
        log = logs.number(message.topic(), message.partition())
        if error is None:
            _tell("a", log, number, message.offset())
        else:
            _tell("f", log, number, error.name(), error.str())

    sizes = random.Random(name)
    number = 0
    due = time.monotonic()
    while not stopping():
        if in_flight < _MOST_IN_FLIGHT:
            for log in range(logs.count):
                _tell("s", log, number)
                topic, partition = logs.place(log)
                record = f"{name}/{log}/{number}"
                value = f"{record} {'.' * sizes.randrange(600)}"
                in_flight += 1
                producer.produce(
                    topic, key=key_of(record, keys), value=value, partition=partition, on_delivery=delivered
                )
            number += 1
        due = max(due, time.monotonic() - 1) + logs.count / rate
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


def _got(message: ck.Message, logs: Logs) -> None:
    error = message.error()
    if error is None:
        name = (message.value() or b"").partition(b" ")[0].decode(errors="backslashreplace")
        _tell("r", logs.number(message.topic(), message.partition()), message.offset(), name)
    elif error.fatal() or error.code() in (ck.KafkaError._AUTO_OFFSET_RESET, ck.KafkaError.OFFSET_OUT_OF_RANGE):
        _tell("e", error.str())


class _Asker:
    """Requests the ends of the log and reports every answer.

    Uses the admin client, because a consumer's ``get_watermark_offsets`` may wait forever when brokers change.
    """

    def __init__(self, bootstrap: str, logs: Logs) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **_SOON})
        self._logs = logs

    def start(self, log: int) -> int | None:
        """None without an answer."""
        return self._ask(log, _EARLIEST, "{} -1")

    def end(self, log: int) -> int | None:
        return self._ask(log, _LATEST, "-1 {}")

    def _ask(self, log: int, spec: OffsetSpec, shown: str) -> int | None:
        asked = time.monotonic()
        (answer,) = self._admin.list_offsets(
            {ck.TopicPartition(*self._logs.place(log)): spec}, request_timeout=_ASK_SECONDS
        ).values()
        try:
            offset: int = answer.result(2 * _ASK_SECONDS).offset
        except (ck.KafkaException, TimeoutError):
            return None
        _tell("w", log, shown.format(offset), f"{asked:.6f}")
        return offset


def read(bootstrap: str, logs: Logs, rewind_seconds: float) -> None:
    stopping = _until_input_ends()
    consumer, asker = _consumer(bootstrap), _Asker(bootstrap, logs)
    next_of = dict.fromkeys(range(logs.count), 0)
    for log in next_of:
        _tell("m", log, 0)
    consumer.assign([ck.TopicPartition(*logs.place(log), 0) for log in next_of])

    def ask() -> None:
        while not stopping():
            for log in range(logs.count):
                asker.end(log)
                asker.start(log)
            time.sleep(_PAUSE_SECONDS)

    threading.Thread(target=ask, daemon=True).start()
    dice = random.Random(rewind_seconds)
    rewound = (0, 0)
    rewind_at = time.monotonic() + rewind_seconds
    while not stopping():
        for message in consumer.consume(500, timeout=0.2):
            _got(message, logs)
            if message.error() is None:
                next_of[logs.number(message.topic(), message.partition())] = (message.offset() or 0) + 1
        # It must first reach the position of its last rewind, so that it keeps up with the others on average.
        if time.monotonic() > rewind_at and next_of[rewound[0]] >= rewound[1]:
            rewind_at = time.monotonic() + rewind_seconds
            log = dice.randrange(logs.count)
            rewound = (log, next_of[log])
            next_of[log] = max(0, next_of[log] - dice.randrange(_FARTHEST))
            _tell("m", log, next_of[log])
            consumer.seek(ck.TopicPartition(*logs.place(log), next_of[log]))
    consumer.close()


def reread(bootstrap: str, logs: Logs) -> None:
    consumer, asker = _consumer(bootstrap), _Asker(bootstrap, logs)
    ends = {}
    for log in range(logs.count):
        while (start := asker.start(log)) is None or (end := asker.end(log)) is None:
            time.sleep(_PAUSE_SECONDS)
        ends[log] = end
        _tell("m", log, start)
    waiting = {log for log, end in ends.items() if end}
    consumer.assign([ck.TopicPartition(*logs.place(log), 0) for log in waiting])
    while waiting:
        for message in consumer.consume(1000, timeout=0.5):
            _got(message, logs)
            log = logs.number(message.topic(), message.partition())
            if message.error() is None and (message.offset() or 0) + 1 >= ends[log]:
                waiting.discard(log)
    consumer.close()


def join(bootstrap: str, topic: str, group: str, settings: dict[str, str]) -> None:
    """Run two members with librdkafka's defaults and ``settings``. Any error that reaches a member is reported.

    With ``enable.auto.commit`` librdkafka alone commits and retries failed commits.
    """
    stopping, logs = _until_input_ends(), Logs([topic], 0)

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
                _got(message, logs)
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
    count, *rest = more
    logs = Logs(topic.split(","), int(count))
    if command == "produce":
        name, rate, keys, *settings = rest
        given = dict(text.split("=", 1) for text in settings)
        produce(bootstrap, logs, name, int(rate), int(keys), given)
    elif command == "read":
        read(bootstrap, logs, float(rest[0]))
    else:
        reread(bootstrap, logs)


if __name__ == "__main__":
    main()
