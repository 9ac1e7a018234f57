"""Requests of readers of whole topics, on every transport."""

import pytest
import trio
import trio.testing

from kafscale.errors import Unavailable
from kafscale.rpc.bulk import Bulk
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.v1.storage_pb2 import FetchRequest, PlanScanReply, PlanScanRequest, ScanPiece, ScanRequest, TopicsRequest
from tests.support.carrier import TIMEOUT, Carrier, SendPiece

MIB = 1 << 20


async def test_each_method_reaches_its_implementation_and_answers(storage: SegmentStorageClient) -> None:
    assert (await storage.topics(TopicsRequest(names=["a", "b"]), timeout=TIMEOUT)).instances == ["a", "b"]
    assert await storage.plan_scan(PlanScanRequest(), timeout=TIMEOUT) == PlanScanReply()
    async with storage.scan(ScanRequest()) as stream:
        with pytest.raises(Unavailable, match="the stream ended"):
            await stream.receive()


async def test_a_scan_is_not_read_far_ahead_of_a_slow_reader(storage: SegmentStorageClient, carrier: Carrier) -> None:
    pieces, sent = 100, 0

    async def pour(_: ScanRequest, send: SendPiece) -> None:
        nonlocal sent
        for number in range(pieces):
            await send(ScanPiece(first_offset=number, records=bytes(MIB)))
            sent += 1

    carrier.scanning = pour
    most_unread = 0
    async with storage.scan(ScanRequest()) as stream:
        for number in range(pieces):
            # The sender can run ahead until it waits, or while this call is at the service.
            await trio.testing.wait_all_tasks_blocked()
            await storage.fetch(FetchRequest(), timeout=TIMEOUT)
            piece = await stream.receive()
            assert (piece.first_offset, len(piece.records)) == (number, MIB)
            most_unread = max(most_unread, sent - number - 1)
    # Four in the channel, and those in gRPC's flow-control window, here some 20 MB.
    assert 0 < most_unread <= pieces // 2


async def test_records_that_are_sent_separately_are_in_the_piece(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    records = memoryview(bytes(range(256)) * 4096)[1:]

    async def pour(_: ScanRequest, send: SendPiece) -> None:
        await send(Bulk(ScanPiece(first_offset=7, object="a segment"), ScanPiece.RECORDS_FIELD_NUMBER, records))
        await send(ScanPiece(first_offset=8))

    carrier.scanning = pour
    async with storage.scan(ScanRequest()) as stream:
        assert await stream.receive() == ScanPiece(first_offset=7, object="a segment", records=bytes(records))
        assert await stream.receive() == ScanPiece(first_offset=8)


async def test_leaving_a_scan_cancels_it_at_the_service(storage: SegmentStorageClient, carrier: Carrier) -> None:
    async def pour(_: ScanRequest, send: SendPiece) -> None:
        try:
            while True:
                await send(ScanPiece(records=bytes(MIB)))
        finally:
            carrier.cancelled.set()

    carrier.scanning = pour
    with trio.fail_after(TIMEOUT):
        async with storage.scan(ScanRequest()) as stream:
            await stream.receive()
        await carrier.cancelled.wait()
