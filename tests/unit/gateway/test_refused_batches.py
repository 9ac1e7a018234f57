"""Batches of an idempotent producer that were sent before it knew that an earlier one was refused."""

import pytest

from services.gateway.owners.refused import RefusedBatches, SentSequence
from tests.support.gateway.asking import produce
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import running_gateway
from tests.support.storage.sequences import numbered
from tests.unit.gateway.two_owners import NOT_LEADER, settled, two_owners

KEY, LAST = (b"id", 0), (1 << 31) - 1


async def test_a_later_batch_does_not_reach_a_new_owner_before_the_refused_one() -> None:
    async with two_owners() as two:
        client = await two.harness.connect()
        two.a.moved[two.topic.id, 0] = "b"
        assert (await produce(client, numbered(0, 2))).error_code == NOT_LEADER
        behind = await produce(client, numbered(2, 1))
        assert behind.error_code.retriable
        assert two.b.appends == []
        assert (await produce(client, numbered(5, producer_id=8))).error_code == 0, "another producer"
        for sequence in (0, 2):
            assert (await produce(client, numbered(sequence, 2))).error_code == 0
        assert len(two.b.appends) == 3


@pytest.mark.parametrize(("refused", "later"), [(0, 1), (LAST, 0), (LAST - 3, 4)])
def test_batches_pass_again_when_the_first_refused_one_has_come(refused: int, later: int) -> None:
    batches = RefusedBatches()
    first, second = SentSequence(1, 0, refused), SentSequence(1, 0, later)
    batches.note(KEY, first, 0.0)
    batches.note(KEY, second, 1.0)
    assert batches.is_behind(KEY, second, 2.0)
    assert not batches.is_behind((b"id", 1), second, 2.0)
    assert not batches.is_behind(KEY, first, 3.0)
    assert not batches.is_behind(KEY, second, 3.0)


def test_an_earlier_batch_and_those_of_a_new_epoch_pass() -> None:
    batches = RefusedBatches()
    batches.note(KEY, SentSequence(1, 0, 5), 0.0)
    batches.note(KEY, SentSequence(1, 0, 3), 0.0)
    assert batches.is_behind(KEY, SentSequence(1, 0, 4), 0.0)
    assert not batches.is_behind(KEY, SentSequence(1, 0, 2), 0.0)
    batches.note(KEY, SentSequence(1, 0, 3), 0.0)
    assert not batches.is_behind(KEY, SentSequence(1, 1, 4), 0.0)


@pytest.mark.parametrize(("epoch", "first", "behind"), [(0, 4, True), (0, 5, False), (0, 6, False), (1, 0, False)])
def test_a_batch_that_storage_has_accepted_proves_that_earlier_ones_are_there(
    epoch: int, first: int, behind: bool
) -> None:
    batches = RefusedBatches()
    batches.note(KEY, SentSequence(1, 0, 5), 0.0)
    batches.succeeded(KEY, SentSequence(1, epoch, first))
    assert batches.is_behind(KEY, SentSequence(1, 0, 7), 0.0) == behind


async def test_a_batch_that_was_refused_without_any_instance_comes_first() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        await harness.cluster.remove("storage")
        await settled()
        client = await harness.connect()
        assert (await produce(client, numbered(0, 2))).error_code == NOT_LEADER
        await harness.cluster.add("next", storage := FakeStorage())
        await settled()
        assert (await produce(client, numbered(2, 1))).error_code.retriable
        assert storage.appends == []


def test_a_refused_batch_that_does_not_come_again_is_forgotten() -> None:
    batches = RefusedBatches()
    batches.note(KEY, SentSequence(1, 0, 5), 0.0)
    assert batches.is_behind(KEY, SentSequence(1, 0, 6), 2.0)
    assert not batches.is_behind(KEY, SentSequence(1, 0, 6), 3.0)
    for producer in range(20_000):
        batches.note(KEY, SentSequence(producer, 0, 5), 11.0)
    assert len(batches) == 10_000
