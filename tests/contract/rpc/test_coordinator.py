"""Each method of the coordinator reaches its implementation, on every transport."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest
import trio

from kafscale.errors import Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.direct import Direct
from kafscale.rpc.generated import GroupCoordinator, GroupCoordinatorClient
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.server import RpcServer
from kafscale.rpc.services import bind_coordinator
from kafscale.v1 import coordinator_pb2 as pb
from tests.support.carrier import TIMEOUT

METHODS = [
    name for name in vars(GroupCoordinatorClient) if inspect.iscoroutinefunction(vars(GroupCoordinatorClient)[name])
]


class _Recorder:
    """Has every method of the protocol, records the requests, and answers with an empty reply of the right type."""

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
        yield GroupCoordinatorClient(Direct(bind_coordinator(service)))
        return
    async with trio.open_nursery() as nursery:
        port = await nursery.start(RpcServer([bind_coordinator(service)]).run, "127.0.0.1:0", trio.Event())
        async with Channel(f"127.0.0.1:{port}") as channel:
            yield GroupCoordinatorClient(channel)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", METHODS)
async def test_each_method_reaches_its_implementation_and_answers(
    coordinator: GroupCoordinatorClient, recorder: _Recorder, name: str
) -> None:
    hints: dict[str, Any] = inspect.get_annotations(vars(GroupCoordinatorClient)[name])
    reply = await getattr(coordinator, name)(hints["request"](), timeout=TIMEOUT)
    assert reply == hints["return"]()
    assert recorder.asked == [(name, hints["request"]())]


class _Rebalance(_Recorder):
    """Joins and syncs end when all members have arrived, which the test decides."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.moved = trio.Event()
        self.over = trio.Event()

    async def join_group(self, _: pb.JoinGroupRequest) -> pb.JoinGroupReply:
        await self._wait()
        return pb.JoinGroupReply()

    async def sync_group(self, _: pb.SyncGroupRequest) -> pb.SyncGroupReply:
        await self._wait()
        return pb.SyncGroupReply()

    async def _wait(self) -> None:
        self.waiting += 1
        self.moved.set()
        self.moved = trio.Event()
        await self.over.wait()


async def test_waiting_members_are_bounded_and_do_not_block_heartbeats() -> None:
    service, limits = _Rebalance(), RpcLimits(max_calls=1, max_waiting_calls=4)
    server = RpcServer([bind_coordinator(cast(GroupCoordinator, service))], limits)
    async with trio.open_nursery() as serving:
        port = await serving.start(server.run, "127.0.0.1:0", trio.Event())
        async with Channel(f"127.0.0.1:{port}") as channel, trio.open_nursery() as members:
            client = GroupCoordinatorClient(channel)
            for _ in range(2):
                members.start_soon(partial(client.join_group, pb.JoinGroupRequest(), timeout=TIMEOUT))
                members.start_soon(partial(client.sync_group, pb.SyncGroupRequest(), timeout=TIMEOUT))
            with trio.fail_after(TIMEOUT):
                while service.waiting < 4:
                    await service.moved.wait()
            await client.heartbeat(pb.HeartbeatRequest(), timeout=TIMEOUT)
            await client.offset_commit(pb.OffsetCommitRequest(), timeout=TIMEOUT)
            with pytest.raises(Unavailable, match="limit of 4 concurrent calls"):
                await client.join_group(pb.JoinGroupRequest(), timeout=TIMEOUT)
            service.over.set()
        serving.cancel_scope.cancel()
