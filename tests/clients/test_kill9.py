"""kill -9 of the broker while three clients produce with acks=all: acked records remain, once and in order."""

import itertools
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.servers.apache_kafka import AGAINST_APACHE
from tests.support.acked import PRODUCERS, AckedProducer, await_acks, running_producers
from tests.support.broker import KafscaleBroker
from tests.support.clients.confluent import ConfluentClient

ROUNDS = {"local": 3, "s3": 2}
LONG_ROUNDS = 10
MANY_SEGMENTS = {"KAFSCALE_SEGMENT_BYTES": "1KB"}


def _check(producer: AckedProducer, log: list[bytes | None], first: int) -> None:
    """Check that every acked record is at its acked offset, without duplicates and in the order of sending."""
    name = type(producer).__name__
    assert first == 0, name
    numbers = [int(value or b"-1") for value in log]
    assert all(earlier < later for earlier, later in itertools.pairwise(numbers)), f"{name}: out of order"
    lost = {number: offset for number, offset in producer.acked.items() if log[offset : offset + 1] != [b"%d" % number]}
    assert not lost, f"{name}: acked but not at their offsets: {dict(list(lost.items())[:5])} of {len(lost)}"


def _check_exactly_once(producer: AckedProducer, log: list[bytes | None], first: int) -> None:
    """Check that every sent record is in the log once, in order, at its acked offset."""
    assert (first, log) == (0, [b"%d" % number for number in range(len(log))]), type(producer).__name__
    assert producer.acked == {number: number for number in range(len(log))}, type(producer).__name__


def _run_rounds(rounds: int, directory: Path, env: Mapping[str, str], *, idempotent: bool = False) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed of the kill times: {seed}")
    moments = random.Random(seed)
    broker = KafscaleBroker(directory, env)
    try:
        client = ConfluentClient(broker.bootstrap)
        client.create_topic("acked", partitions=len(PRODUCERS))
        with running_producers(broker.bootstrap, "acked", idempotent=idempotent) as producers:
            await_acks(producers, 1, timeout=60)
            for _ in range(rounds):
                # The kill comes at a random moment of a flush interval; the return of acks is awaited.
                time.sleep(moments.uniform(0.1, 1.2))
                broker.kill_and_restart()
                await_acks(producers, 100, timeout=60)
        for partition, producer in enumerate(producers):
            first, end = client.offsets("acked", partition=partition)
            records = client.consume("acked", count=end - first, partition=partition)
            assert [record.offset for record in records] == list(range(first, end))
            check = _check_exactly_once if idempotent else _check
            check(producer, [record.value for record in records], first)
        print("acked:", [len(producer.acked) for producer in producers])
    finally:
        broker.stop()


pytestmark = pytest.mark.skipif(AGAINST_APACHE, reason="Apache Kafka does not fsync before it acks")


@pytest.mark.timeout(600)
def test_every_acked_record_survives_kill_9_once_and_in_order(
    store: str, store_env: Callable[[], Mapping[str, str]], tmp_path: Path
) -> None:
    _run_rounds(ROUNDS[store], tmp_path, store_env())


@pytest.mark.timeout(600)
def test_idempotent_producers_are_exactly_once_over_kill_9(
    store: str, store_env: Callable[[], Mapping[str, str]], tmp_path: Path
) -> None:
    _run_rounds(ROUNDS[store], tmp_path, store_env(), idempotent=True)


@pytest.mark.timeout(600)
def test_every_acked_record_survives_kill_9_with_many_segments_in_flight(tmp_path: Path) -> None:
    _run_rounds(ROUNDS["local"], tmp_path, MANY_SEGMENTS)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("settings", [{}, MANY_SEGMENTS], ids=["defaults", "many-segments"])
def test_every_acked_record_survives_kill_9_ten_times_on_each_store(
    store: str, store_env: Callable[[], Mapping[str, str]], tmp_path: Path, settings: Mapping[str, str]
) -> None:
    _run_rounds(LONG_ROUNDS, tmp_path, {**store_env(), **settings})
