"""Apache Kafka's log cleaner and KafScale's compaction leave the same records of the same log."""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import confluent_kafka as ck
import pytest

from kafscale.compaction.cleaning import Cleaner, LastOfProducer, collect_keys
from kafscale.compaction.key_map import KeyMap
from kafscale.compaction.transactions import AbortedTransaction, Transactions
from kafscale.records.batch import BatchHeader, peek_one, walk
from kafscale.records.record import Record, read_records
from tests.servers.apache_kafka import ApacheKafka, apache_kafka
from tests.support.clients.confluent import ConfluentClient

SECONDS = 60
MAX = 1 << 24
HOUR_MS = 3_600_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
_ABORT = 0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ApacheKafka, Path]]:
    directory = tmp_path_factory.mktemp("cleaner")
    properties = ["log.cleaner.backoff.ms=50", "transaction.state.log.num.partitions=1"]
    with apache_kafka(directory, heap="512m", properties=properties) as server:
        yield server, directory / "data"


class Log:
    """A topic of one partition in Apache Kafka, which is compacted only when `compact` asks for it."""

    def __init__(self, kafka: tuple[ApacheKafka, Path], topic: str, **configs: str) -> None:
        server, data = kafka
        self._topic = topic
        self._directory = data / f"{topic}-0"
        self._client = ConfluentClient(server.bootstrap)
        self._server = server
        # Markers have the current time. A record rolls the segment if it is an hour later than its first record.
        self._hours = time.time() * 1000 / HOUR_MS
        self._client.create_topic(
            topic,
            configs={
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "segment.ms": str(HOUR_MS),
                "min.cleanable.dirty.ratio": "0",
                "message.timestamp.after.max.ms": str(2**62),
                **configs,
            },
        )

    def produce(self, dice: random.Random, batches: int, **options: object) -> None:
        """Produce batches of random keys, some with tombstones, in an hour of their own."""
        self._hours += 1
        producer = ck.Producer({"bootstrap.servers": self._server.bootstrap, "linger.ms": 1000, **options})
        transactional = "transactional.id" in options
        if transactional:
            producer.init_transactions(SECONDS)
        for _ in range(batches):
            if transactional:
                producer.begin_transaction()
            for _ in range(dice.randint(1, 6)):
                value = None if dice.random() < 0.25 else dice.randbytes(dice.randint(0, 60))
                at = int(self._hours * HOUR_MS) + dice.randint(0, HOUR_MS // 2)
                producer.produce(
                    self._topic, value, b"k%d" % dice.randint(0, 25), timestamp=at, headers=[("h", dice.randbytes(3))]
                )
            producer.flush(SECONDS)
            if transactional:
                dice.choice([producer.commit_transaction, producer.abort_transaction])(SECONDS)

    def roll(self) -> None:
        """Make a new segment the active one, which is never cleaned."""
        self._hours += 2
        producer = ck.Producer({"bootstrap.servers": self._server.bootstrap})
        at = int(self._hours * HOUR_MS)
        producer.produce(self._topic, b"x", b"the last", timestamp=at)
        producer.flush(SECONDS)

    def batches(self) -> list[bytes]:
        """Return the batches below the active segment."""
        *closed, _ = sorted(self._directory.glob("*.log"))
        data = b"".join(path.read_bytes() for path in closed)
        return [data[position : position + header.size] for position, header in walk(data)]

    def active(self) -> list[bytes]:
        """Return the batches of the active segment."""
        data = max(self._directory.glob("*.log")).read_bytes()
        return [data[position : position + header.size] for position, header in walk(data)]

    def compact(self) -> list[bytes]:
        """Have the log cleaned once, and return what is left below the active segment."""
        checkpoint = self._directory.parent / "cleaner-offset-checkpoint"
        bound = peek_one(self.active()[0]).base_offset
        self._client.alter_config(self._topic, "cleanup.policy", "compact")
        deadline = time.monotonic() + SECONDS
        while f"{self._topic} 0 {bound}" not in (checkpoint.read_text() if checkpoint.exists() else ""):
            assert time.monotonic() < deadline, "the log was not cleaned"
            time.sleep(0.05)
        self._client.alter_config(self._topic, "cleanup.policy", "delete")
        return self.batches()


def cleaned(log: Sequence[bytes], active: Sequence[bytes], *, dirty: int, now: int) -> list[bytes]:
    """Return what KafScale leaves of ``log``, before which nothing was removed."""
    aborted = list(_aborted([*log, *active]))
    keys = KeyMap(1 << 20, secret=b"0123456789abcdef")
    part = [batch for batch in log if peek_one(batch).base_offset >= dirty]
    assert collect_keys(part, keys, Transactions(aborted), max_bytes=MAX) is None
    producers = _producers([*log, *active])
    cleaner = Cleaner(keys, Transactions(aborted), producers, now_ms=now, horizon_ms=now + 1, max_bytes=MAX)
    return [bytes(left) for batch in log if (left := cleaner.clean(batch)) is not None]


def _aborted(log: Sequence[bytes]) -> Iterator[AbortedTransaction]:
    since: dict[int, int] = {}
    for batch in log:
        header = peek_one(batch)
        if not header.is_transactional:
            continue
        if not header.is_control:
            since.setdefault(header.producer_id, header.base_offset)
        elif header.record_count:
            [record] = read_records(batch, max_bytes=MAX)
            first = since.pop(header.producer_id, header.base_offset)
            if record.key is not None and record.key[3] == _ABORT:
                yield AbortedTransaction(header.producer_id, first, header.base_offset)


def _producers(log: Sequence[bytes]) -> dict[int, LastOfProducer]:
    """Return the last batches, of which a producer's marker with a new epoch makes the state forget the data."""
    last: dict[int, LastOfProducer] = {}
    for header in map(peek_one, log):
        if header.producer_id < 0:
            continue
        known = last.get(header.producer_id)
        if not header.is_control:
            last[header.producer_id] = LastOfProducer(header.last_offset, header.producer_epoch)
        elif known is None or known.epoch != header.producer_epoch:
            last[header.producer_id] = LastOfProducer(None, header.producer_epoch)
    return last


def content(batch: bytes) -> tuple[object, ...]:
    """Return what clients see of a batch. The horizon's time depends on when the cleaner ran, and Kafka's cleaner takes
    the first timestamp that is left as the base of the others."""
    header: BatchHeader = peek_one(batch)
    records: list[Record] = list(read_records(batch, max_bytes=MAX))
    horizon = header.has_horizon
    base = 0 if header.record_count else header.base_timestamp
    kept = header._replace(batch_length=0, crc=0, base_timestamp=base, leader_epoch=0)
    return kept, horizon, records


@pytest.mark.parametrize("seed", range(2))
def test_the_log_cleaner_leaves_the_same_records(kafka: tuple[ApacheKafka, Path], seed: int) -> None:
    dice = random.Random(seed)
    log = Log(kafka, f"compacted-{seed}", **{"delete.retention.ms": "0"})
    dirty, before = 0, list[bytes]()
    for _ in range(2):
        for codec in dice.sample(CODECS, 3):
            log.produce(dice, 8, **{"compression.type": codec, "enable.idempotence": dice.random() < 0.5})
            log.produce(dice, 6, **{"compression.type": codec, "transactional.id": f"{seed}-{codec}"})
        log.roll()
        before, active = log.batches(), log.active()
        after = log.compact()
        # In the second stage all horizons of the first one are past.
        ours = cleaned(before, active, dirty=dirty, now=int(time.time() * 1000))
        assert list(map(content, ours)) == list(map(content, after))
        assert len(after) < len(before)
        dirty = peek_one(active[0]).base_offset
