"""A program that produces with kafka-python for the kill tests, like the Java client's AckedProducer.

It sends "0", "1", "2" ... to one partition until standard input ends, and prints "NUMBER OFFSET" for each ack.
Arguments: bootstrap address, topic, partition, and `idempotent` for the client's defaults instead of no retries.
"""

import sys
import threading
from typing import Any

import kafka

from tests.support.acked import GIVE_UP_MS, MOST_IN_FLIGHT


def main(bootstrap: str, topic: str, partition: int, *, idempotent: bool) -> None:
    once = {"enable_idempotence": False, "retries": 0, "delivery_timeout_ms": GIVE_UP_MS}
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        request_timeout_ms=GIVE_UP_MS // 2,
        max_block_ms=GIVE_UP_MS,
        reconnect_backoff_max_ms=100,
        linger_ms=1,
        **({} if idempotent else once),
    )
    room = threading.Semaphore(MOST_IN_FLIGHT)
    stop = threading.Thread(target=sys.stdin.read)
    stop.start()

    def acked(number: int, metadata: Any) -> None:
        room.release()
        print(number, metadata.offset, flush=True)

    def failed(_: object) -> None:
        room.release()

    number = 0
    while stop.is_alive():
        room.acquire()
        sent = producer.send(topic, value=b"%d" % number, partition=partition)
        sent.add_callback(acked, number)
        sent.add_errback(failed)
        number += 1
    producer.close(timeout=2 * GIVE_UP_MS / 1000)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), idempotent=sys.argv[4:] == ["idempotent"])
