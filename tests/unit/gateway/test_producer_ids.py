"""InitProducerId: unique producer ids."""

from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode

from kafscale.errors import Unavailable
from kafscale.metadata.memory import MemoryMetadataStore, lost_answer, no_answer
from kafscale.metadata.producer_ids import ProducerIds
from tests.support.gateway.harness import Client, read_response, request, running_gateway

_TIMEOUT = timedelta(minutes=1)


async def init(client: Client, version: int, transactional_id: str | None = None) -> tuple[int, int, int]:
    had = {"producer_id": 5, "producer_epoch": 3} if version >= 3 else {}
    body = request(22, version, transactional_id=transactional_id, transaction_timeout=_TIMEOUT, **had)
    reply = read_response(22, version, await client.call(22, version, body))
    return reply.error_code, reply.producer_id, reply.producer_epoch


@pytest.mark.parametrize("version", range(6))
async def test_every_request_gets_a_new_id_with_epoch_0(version: int) -> None:
    async with running_gateway() as harness:
        first, second = await harness.connect(), await harness.connect()
        answers = [await init(client, version) for client in (first, second, first)]
        assert answers == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_id_is_refused(version: int) -> None:
    async with running_gateway() as harness:
        answer = await init(await harness.connect(), version, transactional_id="tx")
        assert answer == (ErrorCode.transactional_id_authorization_failed, -1, -1)


async def test_ids_are_unique_across_processes_and_lost_answers() -> None:
    store = MemoryMetadataStore()
    one, other = ProducerIds(store, "x"), ProducerIds(store, "x")
    taken = [await ids.take() for _ in range(1001) for ids in (one, other)]
    store.faults.append(lost_answer())
    third = ProducerIds(store, "x")
    with pytest.raises(Unavailable):
        await third.take()
    store.faults.append(no_answer("txn"))
    with pytest.raises(Unavailable):
        await third.take()
    taken += [await third.take() for _ in range(3)]
    assert len(set(taken)) == len(taken) == 2005
    assert min(taken) == 0


async def test_init_producer_id_gets_a_retriable_error_without_the_metadata_store() -> None:
    async with running_gateway() as harness:
        harness.metadata.faults.append(no_answer("txn"))
        client = await harness.connect()
        assert (await init(client, 4))[0] == ErrorCode.coordinator_load_in_progress
        assert (await init(client, 4))[0] == ErrorCode.none
