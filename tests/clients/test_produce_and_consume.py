"""Every client reads what every other wrote, byte for byte, from any offset."""

import time
from collections.abc import Mapping

import pytest

from tests.support.clients import CLIENTS
from tests.support.clients.interface import CODECS, Client, Message, ProduceOptions, TopicClient

DAY_MS = 86_400_000
START_MS = time.time_ns() // 1_000_000 - 2 * DAY_MS
"""Current, so that retention keeps the records."""


def _fits(client: Client, message: Message) -> bool:
    return client.abilities.null_headers or all(value is not None for _, value in message.headers)


VARIETY = [
    Message(b"plain"),
    Message(b"keyed", key=b"key"),
    Message(b"", key=b"empty value"),
    Message(None, key=b"null value"),
    Message(b"empty key", key=b""),
    Message(b"headers", key=b"h", headers=(("first", b"1"), ("second", b"two words"), ("first", b"again"))),
    Message(b"null header", key=b"n", headers=(("nothing", None), ("something", b"x"))),
    Message(bytes(range(4, 256)) * 3, key=bytes(range(4, 256))),
    Message("Grüße, 世界\n".encode(), key="ключ".encode()),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", sorted(CLIENTS))
def test_every_client_reads_what_each_wrote_with_each_codec(
    clients: Mapping[str, Client], topic: str, writer: str, codec: str
) -> None:
    by = clients[writer]
    messages = [message for message in VARIETY if _fits(by, message)]
    messages += [Message(b"line %d of a batch that compresses well" % n, key=b"%d" % n) for n in range(200)]
    offsets = by.produce(topic, messages, ProduceOptions(codec=codec))
    assert offsets is None or offsets == list(range(len(messages)))
    seen = {}
    for name, reader in clients.items():
        received = reader.consume(topic, count=len(messages))
        assert [record.offset for record in received] == list(range(len(messages))), name
        assert [record.content for record in received] == [(m.key, m.value, m.headers) for m in messages], name
        assert reader.offsets(topic) == (0, len(messages)), name
        seen[name] = [record.timestamp for record in received]
    assert len({tuple(stamps) for stamps in seen.values()}) == 1, "the clients disagree on the timestamps"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_consuming_starts_at_any_offset_of_a_batch(
    clients: Mapping[str, Client], client: Client, topic: str, codec: str
) -> None:
    clients["java"].produce(topic, [Message(b"%d" % n) for n in range(100)], ProduceOptions(codec=codec))
    clients["java"].produce(topic, [Message(b"%d" % n) for n in range(100, 120)], ProduceOptions(codec=codec))
    for start in (0, 1, 57, 99, 100, 119):
        received = client.consume(topic, offset=start, count=120 - start)
        assert [record.offset for record in received] == list(range(start, 120))
        assert [record.value for record in received] == [b"%d" % n for n in range(start, 120)]


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_timestamp_finds_the_first_record_at_or_after_it(
    clients: Mapping[str, Client], client: Client, topic: str, codec: str
) -> None:
    stamps = [START_MS + n * 1000 for n in range(50)]
    # Out of order on purpose: the first record in the log is returned, not the one with the nearest time.
    stamps[20], stamps[30] = START_MS + 40_500, START_MS + 5
    messages = [Message(b"%d" % n, timestamp=stamp) for n, stamp in enumerate(stamps)]
    clients["java"].produce(topic, messages[:25], ProduceOptions(codec=codec))
    clients["java"].produce(topic, messages[25:], ProduceOptions(codec=codec))
    wanted = {START_MS - DAY_MS: 0, START_MS: 0, START_MS + 1: 1, START_MS + 10_000: 10, START_MS + 10_001: 11}
    wanted |= {START_MS + 20_001: 20, START_MS + 40_501: 41, START_MS + 49_000: 49}
    for timestamp, offset in wanted.items():
        assert client.offset_for_time(topic, timestamp) == offset
    after_all = client.offset_for_time(topic, START_MS + DAY_MS)
    # kcat's query returns the end of the log when librdkafka finds no offset.
    assert after_all is None or (client.name == "kcat" and after_all == 50)
    found = client.offset_for_time(topic, START_MS + 33_000)
    assert found is not None
    assert client.consume(topic, offset=found, count=1)[0].value == b"%d" % found


def test_timestamps_that_a_client_sets_are_kept(client: Client, topic: str) -> None:
    if not client.abilities.timestamps:
        pytest.skip(f"{client.name} sets no timestamps")
    stamps = [START_MS, START_MS + 5, START_MS - 7, START_MS + DAY_MS]
    client.produce(topic, [Message(b"x", timestamp=stamp) for stamp in stamps])
    assert [record.timestamp for record in client.consume(topic, count=4)] == stamps


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_message_of_900_kb_is_produced_and_consumed(
    clients: Mapping[str, Client], client: Client, topic: str, codec: str
) -> None:
    value = b"".join(b"%06d," % n for n in range(900_000 // 7))
    messages = [Message(b"before"), Message(value, key=b"large"), Message(b"after")]
    client.produce(topic, messages, ProduceOptions(codec=codec))
    for name, reader in clients.items():
        received = reader.consume(topic, count=3)
        assert [record.content for record in received] == [(m.key, m.value, m.headers) for m in messages], name


@pytest.mark.parametrize("acks", ["0", "1"])
def test_acks_0_and_1_store_every_record_in_order(client: Client, topic: str, acks: str) -> None:
    messages = [Message(b"%d" % n) for n in range(500)]
    client.produce(topic, messages, ProduceOptions(acks=acks))
    received = client.consume(topic, count=500)
    assert [record.value for record in received] == [message.value for message in messages]


def test_partitions_have_separate_records(client: Client, makers: Mapping[str, TopicClient], topic: str) -> None:
    spread = f"{topic}-spread"
    makers["confluent-kafka"].create_topic(spread, partitions=6)
    for partition in range(6):
        messages = [Message(b"%d-%d" % (partition, n)) for n in range(partition + 1)]
        client.produce(spread, messages, ProduceOptions(partition=partition))
    for partition in range(6):
        assert client.offsets(spread, partition=partition) == (0, partition + 1)
        received = client.consume(spread, partition=partition, count=partition + 1)
        assert [record.value for record in received] == [b"%d-%d" % (partition, n) for n in range(partition + 1)]
