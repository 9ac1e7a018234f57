"""Bodies of requests to S3 that are sent slowly."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.objects.s3_http import _SpreadBody
from kafscale.records.checksum import Buffer


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_the_pieces_of_a_body_are_spread_and_the_first_is_sent_at_once(
    autojump_clock: MockClock, kind: type[Buffer]
) -> None:
    body, began = bytes(range(256)) * 4096, trio.current_time()
    sent = [(round(trio.current_time() - began, 6), piece) async for piece in _SpreadBody(kind(body), 8.0)]
    assert [at for at, _ in sent] == [0.0, 2.0, 4.0, 6.0]
    assert b"".join(piece for _, piece in sent) == body


async def test_a_slow_connection_makes_up_for_the_time_between_pieces(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    async for _ in _SpreadBody(bytes(1 << 20), 8.0):
        await trio.sleep(3)
    assert trio.current_time() - began == 12
