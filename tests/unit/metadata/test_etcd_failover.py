"""Which calls are retried on another member of etcd, with servers that fail on demand."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing

from kafscale.errors import Refused, Unavailable
from kafscale.etcdpb import etcd_pb2 as pb
from kafscale.metadata.etcd import EtcdMetadataStore, open_etcd
from kafscale.metadata.etcd_client import EtcdClient, EtcdConfig, Member
from kafscale.metadata.interface import Get, Put, TxnResult
from kafscale.rpc.methods import bind
from kafscale.rpc.server import RpcServer


@dataclass
class Kv:
    """A member whose calls raise the remaining ``failures`` first."""

    failures: Iterator[Exception] = field(default_factory=lambda: iter(()))
    hangs: bool = False
    calls: int = 0

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        await self._fail()
        return pb.RangeResponse()

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        await self._fail()
        return pb.TxnResponse(
            header=pb.ResponseHeader(revision=7), succeeded=True, responses=[pb.ResponseOp() for _ in request.success]
        )

    async def compact(self, request: pb.CompactionRequest) -> pb.CompactionResponse:
        await self._fail()
        return pb.CompactionResponse()

    async def authenticate(self, request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
        await self._fail()
        return pb.AuthenticateResponse(token=f"of {request.name}")

    async def _fail(self) -> None:
        self.calls += 1
        if self.hangs:
            await trio.sleep_forever()
        for error in self.failures:
            raise error


@asynccontextmanager
async def _store(*members: Kv, seconds: float = 60.0, username: str = "") -> AsyncIterator[EtcdMetadataStore]:
    """A store whose current member is the first."""
    async with trio.open_nursery() as nursery:
        ports = []
        for member in members:
            server = RpcServer([bind(pb.DESCRIPTOR.services_by_name[name], member) for name in ("KV", "Auth")])
            ports.append(await nursery.start(server.run, "127.0.0.1:0", trio.Event()))
        endpoints = tuple(f"127.0.0.1:{port}" for port in ports)
        config = EtcdConfig(endpoints=endpoints, username=username, timeout_seconds=seconds)
        async with open_etcd(config, random=lambda: 0.0) as store:
            yield store
        nursery.cancel_scope.cancel()


LOST = "Socket closed"
NOT_DONE = "etcdserver: no leader"


async def test_a_write_that_may_have_been_applied_is_sent_once() -> None:
    one, two = Kv(iter([Unavailable(LOST)])), Kv()
    async with _store(one, two) as store:
        with pytest.raises(Unavailable, match=LOST):
            await store.txn([], [Put("a", b"")])
        assert (one.calls, two.calls) == (1, 0)
        # The next call goes to the other member.
        assert await store.txn([], [Put("a", b"")]) == TxnResult(True, 7)
        assert (one.calls, two.calls) == (1, 1)


async def test_a_write_that_certainly_was_not_applied_is_sent_to_the_next_member() -> None:
    one, two = Kv(iter([Unavailable(NOT_DONE)])), Kv()
    async with _store(one, two) as store:
        assert await store.txn([], [Put("a", b"")]) == TxnResult(True, 7)
    assert (one.calls, two.calls) == (1, 1)


async def test_a_write_in_the_branch_that_is_not_chosen_counts_too() -> None:
    one, two = Kv(iter([Unavailable(LOST)])), Kv()
    async with _store(one, two) as store:
        with pytest.raises(Unavailable):
            await store.txn([], [Get("a")], [Put("a", b"")])
    assert (one.calls, two.calls) == (1, 0)


async def test_reads_are_retried_on_every_member_in_turn() -> None:
    one, two = Kv(iter([Unavailable(LOST)] * 2)), Kv(iter([Unavailable(LOST)]))
    async with _store(one, two) as store:
        assert await store.get("a") is None
        assert await store.txn([], [Get("a")]) == TxnResult(True, 7, (None,))
    assert (one.calls, two.calls) == (2, 3)


async def test_a_read_is_sent_to_the_next_member_if_the_first_does_not_answer() -> None:
    one, two = Kv(hangs=True), Kv()
    async with _store(one, two, seconds=2.0) as store:
        assert await store.get("a") is None
    assert (one.calls, two.calls) == (1, 1)


async def test_a_call_that_is_cancelled_without_an_answer_also_leaves_the_member() -> None:
    one, two = Kv(hangs=True), Kv()
    async with _store(one, two) as store:
        with trio.move_on_after(1.1):
            await store.txn([], [Put("a", b"")])
        assert await store.get("a") is None
    assert (one.calls, two.calls) == (1, 1)


async def test_many_calls_authenticate_once_and_elsewhere_if_a_member_does_not_answer() -> None:
    one, two = Kv(hangs=True), Kv()
    async with _store(one, two, seconds=2.0, username="me") as store, trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(store.txn, [], [Put("a", b"")])
    assert (one.calls, two.calls) == (1, 11)


async def test_waiters_for_messages_of_a_member_wake_when_it_is_left_and_no_one_waits_for_it_again() -> None:
    async with EtcdClient(EtcdConfig(endpoints=("127.0.0.1:1", "127.0.0.1:2")), lambda: 0.0) as client:
        first = client.current
        woken: list[Member] = []

        async def wait() -> None:
            with client.while_current(first):
                await trio.sleep_forever()
            woken.append(first)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            client.leave(first)
            # Reported twice, by two calls, the member is left once.
            client.leave(first)
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert [client.current.address, len(woken)] == ["127.0.0.1:2", 2]
        assert not first.waiting


async def test_a_call_times_out_if_no_member_answers() -> None:
    one, two = Kv(iter([Unavailable(LOST)] * 1000)), Kv(iter([Unavailable(LOST)] * 1000))
    async with _store(one, two, seconds=2.0) as store:
        # The last attempt may be cut off by the timeout.
        with pytest.raises(Unavailable, match=f"{LOST}|no answer within"):
            await store.get("a")
    assert one.calls > 1
    assert two.calls > 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Refused("etcdserver: permission denied"), Refused),
        # Another member's database is equally full.
        (Unavailable("etcdserver: mvcc: database space exceeded"), Unavailable),
    ],
)
async def test_a_request_that_every_member_would_reject_is_sent_once(error: Exception, kind: type[Exception]) -> None:
    one, two = Kv(iter([error])), Kv()
    async with _store(one, two) as store:
        with pytest.raises(kind, match="etcdserver"):
            await store.get("a")
    assert (one.calls, two.calls) == (1, 0)
