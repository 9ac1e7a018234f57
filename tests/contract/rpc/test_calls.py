"""Single calls, on every transport."""

import pytest
import trio
from structlog.testing import capture_logs

from kafscale.errors import ConfigError, CorruptData, KafscaleError, Refused, Unavailable
from kafscale.records.errors import CorruptBatch
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import (
    AppendRequest,
    CommitSinkReply,
    CommitSinkRequest,
    DiscardStagesReply,
    DiscardStagesRequest,
    FetchReply,
    FetchRequest,
    FlushReply,
    FlushRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
    PartitionAppend,
    Stage,
    StageReply,
    StageRequest,
)
from tests.support.carrier import TIMEOUT, Carrier

MIB = 1 << 20


async def test_each_method_reaches_its_implementation_and_answers(storage: SegmentStorageClient) -> None:
    appended = await storage.append(AppendRequest(appends=[PartitionAppend(records=b"12345")]), timeout=TIMEOUT)
    assert [result.base_offset for result in appended.results] == [5]
    fetched = await storage.fetch(FetchRequest(stream_id="é", max_bytes=3), timeout=TIMEOUT)
    assert [(result.detail, result.records) for result in fetched.results] == [("é", bytes(3))]
    assert await storage.list_offsets(ListOffsetsRequest(), timeout=TIMEOUT) == ListOffsetsReply()
    assert await storage.flush(FlushRequest(), timeout=TIMEOUT) == FlushReply()


async def test_each_method_of_sinks_reaches_its_implementation_and_answers(
    storage: SegmentStorageClient,
) -> None:
    ref = PartitionRef(topic="é", partition=3)
    staged = await storage.stage(StageRequest(partition=ref, records=bytes(2 * MIB)), timeout=TIMEOUT)
    assert staged == StageReply(stage=Stage(partition=ref, size=2 * MIB))
    committed = await storage.commit_sink(CommitSinkRequest(stages=[staged.stage] * 3), timeout=TIMEOUT)
    assert committed == CommitSinkReply(detail="3")
    assert await storage.discard_stages(DiscardStagesRequest(keys=["k"]), timeout=TIMEOUT) == DiscardStagesReply()


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (Unavailable("the store is slow: é"), Unavailable),
        (CorruptData("bad"), CorruptData),
        (CorruptBatch("a subclass arrives as its kind"), CorruptData),
        (Refused("no"), Refused),
        (ConfigError("KAFSCALE_X is wrong"), ConfigError),
        (KafscaleError("of no kind"), KafscaleError),
    ],
)
async def test_an_error_of_the_service_keeps_its_kind_and_message(
    storage: SegmentStorageClient, carrier: Carrier, raised: KafscaleError, kind: type[KafscaleError]
) -> None:
    async def fail(_: FetchRequest) -> FetchReply:
        raise raised

    carrier.fetching = fail
    with pytest.raises(KafscaleError) as caught:
        await storage.fetch(FetchRequest(), timeout=TIMEOUT)
    assert (type(caught.value), str(caught.value)) == (kind, str(raised))


async def test_an_error_with_a_very_long_message_keeps_its_kind(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    async def fail(_: FetchRequest) -> FetchReply:
        raise Refused("ö" * 100_000)

    carrier.fetching = fail
    with pytest.raises(Refused, match="öö"):
        await storage.fetch(FetchRequest(), timeout=TIMEOUT)


async def test_an_unexpected_exception_is_unavailable_to_the_caller_and_logged(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    defect = ZeroDivisionError("what only the log may say")

    async def fail(_: FetchRequest) -> FetchReply:
        raise defect

    carrier.fetching = fail
    with capture_logs() as logs, pytest.raises(Unavailable) as caught:
        await storage.fetch(FetchRequest(), timeout=TIMEOUT)
    assert "ZeroDivisionError" in str(caught.value)
    assert "only the log" not in str(caught.value)
    assert [(entry["log_level"], entry["exc_info"]) for entry in logs] == [("error", defect)]
    assert defect.__traceback__ is not None
    carrier.fetching = carrier.answer
    await storage.fetch(FetchRequest(), timeout=TIMEOUT)


async def test_a_call_that_times_out_is_unavailable_and_cancelled_at_the_service(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    carrier.fetching = carrier.hang
    with pytest.raises(Unavailable, match="no answer within 1 s"):
        await storage.fetch(FetchRequest(), timeout=1.0)
    with trio.fail_after(TIMEOUT):
        await carrier.cancelled.wait()


async def test_cancelling_a_call_cancels_it_at_the_service_and_the_next_call_is_answered(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    carrier.fetching = carrier.hang
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await storage.fetch(FetchRequest(), timeout=10 * TIMEOUT)

            nursery.start_soon(call)
            await carrier.entered.wait()
            nursery.cancel_scope.cancel()
        await carrier.cancelled.wait()
    carrier.fetching = carrier.answer
    assert (await storage.fetch(FetchRequest(stream_id="next"), timeout=TIMEOUT)).results[0].detail == "next"


async def test_a_thousand_concurrent_calls_get_their_own_answers(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    calls = 1000
    inside = 0
    all_inside = trio.Event()
    answers: dict[int, str] = {}

    async def meet(request: FetchRequest) -> FetchReply:
        nonlocal inside
        inside += 1
        if inside == calls:
            all_inside.set()
        await all_inside.wait()
        return await carrier.answer(request)

    async def call(number: int) -> None:
        reply = await storage.fetch(FetchRequest(stream_id=f"call {number}"), timeout=TIMEOUT)
        answers[number] = reply.results[0].detail

    carrier.fetching = meet
    async with trio.open_nursery() as nursery:
        for number in range(calls):
            nursery.start_soon(call, number)
    assert answers == {number: f"call {number}" for number in range(calls)}


async def test_messages_of_64_mib_pass_in_both_directions(storage: SegmentStorageClient) -> None:
    request = AppendRequest(appends=[PartitionAppend(records=bytes(64 * MIB))])
    assert (await storage.append(request, timeout=TIMEOUT)).results[0].base_offset == 64 * MIB
    fetched = await storage.fetch(FetchRequest(max_bytes=64 * MIB), timeout=TIMEOUT)
    assert fetched.results[0].records == bytes(64 * MIB)
