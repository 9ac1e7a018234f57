"""Each method of the coordinator reaches its own, on every transport."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
import trio

from kafscale.rpc.client import Channel
from kafscale.rpc.direct import DirectCoordinator, GroupCoordinator
from kafscale.rpc.interface import GroupCoordinatorClient
from kafscale.rpc.server import RpcServer
from kafscale.rpc.typed import GrpcCoordinator, bind_coordinator
from tests.contract.rpc.carrier import TIMEOUT

METHODS = [
    name for name in vars(GroupCoordinatorClient) if inspect.iscoroutinefunction(vars(GroupCoordinatorClient)[name])
]


class _Recorder:
    """Has every method of the protocol, keeps what was asked, and answers with an empty reply of the right kind."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []

    def __getattr__(self, name: str) -> Callable[[object], Awaitable[object]]:
        hints = inspect.get_annotations(vars(GroupCoordinator)[name])

        async def answer(request: object) -> object:
            self.asked.append((name, request))
            return hints["return"]()

        return answer


@pytest.fixture
def recorder() -> _Recorder:
    return _Recorder()


@pytest.fixture
async def coordinator(transport: str, recorder: _Recorder) -> AsyncIterator[GroupCoordinatorClient]:
    service = cast(GroupCoordinator, recorder)
    if transport == "direct":
        yield DirectCoordinator(service)
        return
    async with trio.open_nursery() as nursery:
        port = await nursery.start(RpcServer([bind_coordinator(service)]).run, "127.0.0.1:0", trio.Event())
        async with Channel(f"127.0.0.1:{port}") as channel:
            yield GrpcCoordinator(channel)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", METHODS)
async def test_each_method_reaches_its_own_and_answers(
    coordinator: GroupCoordinatorClient, recorder: _Recorder, name: str
) -> None:
    hints: dict[str, Any] = inspect.get_annotations(vars(GroupCoordinatorClient)[name])
    reply = await getattr(coordinator, name)(hints["request"](), timeout=TIMEOUT)
    assert reply == hints["return"]()
    assert recorder.asked == [(name, hints["request"]())]
