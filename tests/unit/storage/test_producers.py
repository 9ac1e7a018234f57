"""The rules for the sequences of one idempotent producer, without a log."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptData
from kafscale.records.batch import BatchHeader, peek
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import ProducerSnapshot
from services.storage.log.producers import ProducerTable, Sequenced, SequenceRefused
from tests.support.storage.harness import batch

LAST = 2**31 - 1


def header(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return peek(batch(b"x"))._replace(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, last_offset_delta=count - 1
    )


class Log:
    """A producer table and the end of its log."""

    def __init__(self, limit: int = 100) -> None:
        self.table = ProducerTable(limit)
        self.end = 0

    def append(self, sent_header: BatchHeader, now_ms: int = 0) -> int:
        """Return the offset of the batch, or of the original if it is a duplicate."""
        original = self.table.original(sent_header)
        if original is not None:
            return original.base_offset
        self.table.add(Sequenced.of(sent_header, self.end), now_ms)
        self.end += sent_header.last_offset_delta + 1
        return self.end - sent_header.last_offset_delta - 1

    def refusal(self, sent_header: BatchHeader) -> Status:
        with pytest.raises(SequenceRefused) as caught:
            self.append(sent_header)
        return caught.value.status


def test_only_the_last_five_batches_are_recognized_as_duplicates() -> None:
    log = Log()
    sent = [header(sequence * 3, 3) for sequence in range(7)]
    offsets = [log.append(each) for each in sent]
    assert [log.append(each) for each in sent[2:]] == offsets[2:]
    assert log.refusal(sent[1]) == Status.OUT_OF_ORDER_SEQUENCE
    assert log.end == 21


@pytest.mark.parametrize("sequence", [0, 1, 2, 4, 100, LAST])
def test_a_batch_that_does_not_follow_the_last_one_is_out_of_order(sequence: int) -> None:
    log = Log()
    log.append(header(0, 3))
    assert log.refusal(header(sequence, 2)) == Status.OUT_OF_ORDER_SEQUENCE
    assert log.append(header(3, 2)) == 3


def test_sequences_wrap_to_0_after_the_largest() -> None:
    log = Log()
    log.append(header(0, LAST))
    assert log.append(header(LAST, 1)) == LAST
    assert log.append(header(0, 1)) == LAST + 1
    log.append(header(1, LAST - 2))
    end = log.end
    assert log.append(header(LAST - 1, 5)) == end
    assert log.append(header(LAST - 1, 5)) == end
    assert log.append(header(3, 1)) == end + 5


def test_an_unknown_producer_starts_at_sequence_0() -> None:
    log = Log()
    assert log.refusal(header(5)) == Status.UNKNOWN_PRODUCER
    assert log.append(header(0)) == 0


def test_a_new_producer_epoch_starts_at_sequence_0_and_fences_the_old_one() -> None:
    log = Log()
    log.append(header(0, 3))
    assert log.refusal(header(3, epoch=1)) == Status.OUT_OF_ORDER_SEQUENCE
    assert log.append(header(0, 3, epoch=1)) == 3
    assert log.refusal(header(3, epoch=0)) == Status.FENCED_PRODUCER
    assert log.append(header(0, 3, epoch=1)) == 3


def test_producers_beyond_the_limit_are_refused_until_some_expire() -> None:
    log = Log(limit=2)
    log.append(header(0, producer_id=1), now_ms=10)
    log.append(header(0, producer_id=2), now_ms=20)
    assert log.refusal(header(0, producer_id=3)) == Status.BUFFER_FULL
    log.append(header(1, producer_id=2), now_ms=30)
    log.table.expire(before_ms=20)
    assert log.append(header(0, producer_id=3)) == 3
    assert log.refusal(header(1, producer_id=1)) == Status.UNKNOWN_PRODUCER
    assert len(log.table) == 2


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 6)), max_size=40))
def test_repeating_any_of_the_last_five_batches_duplicates_and_loses_nothing(steps: list[tuple[int, int, int]]) -> None:
    log, sent = Log(), dict[int, list[tuple[BatchHeader, int]]]()
    for producer_id, count, back in steps:
        mine = sent.setdefault(producer_id, [])
        if 0 < back <= min(len(mine), 5):
            sent_header, offset = mine[-back]
            assert log.append(sent_header) == offset
            continue
        following = (mine[-1][0].base_sequence + mine[-1][0].last_offset_delta + 1) if mine else 0
        sent_header, end = header(following, count, producer_id=producer_id), log.end
        assert log.append(sent_header) == end
        mine.append((sent_header, end))
        assert log.end == end + count


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(1, 7)), max_size=10))
def test_a_table_survives_a_round_trip(producers: list[tuple[int, int, int]]) -> None:
    log = Log()
    for producer_id, epoch, batches in producers:
        if producer_id in {each for each, _, _ in producers if each != producer_id}:
            continue
        for sequence in range(batches):
            try:
                log.append(header(sequence, producer_id=producer_id, epoch=epoch), now_ms=sequence)
            except SequenceRefused:
                break
    data = log.table.dump()
    assert ProducerTable.load(data, 100).dump() == data == log.table.copy().dump()


def test_a_snapshot_with_a_flipped_bit_is_refused_or_equivalent() -> None:
    log = Log()
    for producer_id in (4000, 4001):
        for sequence in range(3):
            log.append(header(sequence, producer_id=producer_id), now_ms=sequence)
    data = log.table.dump()
    for at in range(8 * len(data)):
        wrong = bytearray(data)
        wrong[at // 8] ^= 1 << at % 8
        with suppress(CorruptData):
            assert ProducerTable.load(bytes(wrong), 10).dump() == data


def test_a_snapshot_of_an_earlier_release_without_a_checksum_is_accepted() -> None:
    log = Log()
    log.append(header(0, producer_id=4000))
    data = log.table.dump()
    former = ProducerSnapshot.FromString(data)
    former.ClearField("crc")
    assert ProducerTable.load(former.SerializeToString(), 10).dump() == data


@pytest.mark.parametrize("data", [b"\xff" * 20, b"", b"\x08\x02"])
def test_invalid_snapshots_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        ProducerTable.load(data, 10)
