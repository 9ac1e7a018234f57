"""A topic of which compaction has removed records, for clients to read."""

import time

from confluent_kafka import Producer

from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import TIMEOUT_SECONDS, Message, Received
from tests.support.members import eventually
from tests.support.wire import gateways_partitions

CONFIGS = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
_PAUSE_SECONDS = 0.3
_MOST_ROUNDS = 200


def compacted_log(bootstrap: str, topic: str) -> list[Received]:
    """Create the topic with one partition, and return the records that are left of it.

    Offset 0 is a batch without records, the last one of its producer. Offsets 1 to 9 are gone. The first three records
    that are left are those of the keys a, b and c at the offsets 10 to 12.
    """
    client = ConfluentClient(bootstrap)
    client.create_topic(topic, configs=CONFIGS)
    # A Kafka broker may learn about a new topic after the controller has answered.
    eventually(lambda: gateways_partitions(bootstrap, topic) == {1})
    once = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    once.produce(topic, b"0", key=b"a")
    if once.flush(TIMEOUT_SECONDS):
        raise TimeoutError("the first record is not acknowledged")
    for number in range(_MOST_ROUNDS):
        for key in (b"a", b"b", b"c") if number < 4 else (b"later",):
            client.produce(topic, [Message(b"%d" % number, key=key)])
        left = client.consume_all(topic)
        if [one.offset for one in left[:3]] == [10, 11, 12]:
            return left
        # Only what precedes the last segment is compacted.
        time.sleep(_PAUSE_SECONDS)
    raise TimeoutError(f"not compacted: {left}")
