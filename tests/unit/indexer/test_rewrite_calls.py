"""Calls that rewrite: their progress, reading ahead, how many run at a time, and the processes in which they run."""

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.objects.interface import Body
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import (
    RewriteEvent,
    RewriteInput,
)
from services.indexer.rewriting import runners
from services.indexer.rewriting.frames import BEGIN, Kind, frame_header, parse_frame_header
from services.indexer.service import IndexerService
from tests.support.rewriting import (
    MIB,
    NOW_MS,
    World,
    batch,
    failure_of,
    rewritten,
)
from tests.support.samples.segments import make_segment


@pytest.fixture
def world() -> World:
    return World()


async def test_each_finished_step_and_the_progress_are_reported(world: World, autojump_clock: MockClock) -> None:
    for number in range(8):
        await world.add(batch((f"{number}", "1")))
    world.store.plan = lambda call: Fault(delay=0.4) if call.kind == "get" and "segment-" in call.key else None
    service = world.service(rewrite_read_ahead_bytes=0)
    events = await rewritten(service, world.compact(world.inputs[:4], world.inputs[4:]))
    assert [event.HasField("step") for event in events].count(True) == 2
    progress = [event.objects_read for event in events if not event.HasField("step")]
    # At most one a second: each object takes 0.4 s.
    assert len(progress) in {5, 6}
    assert all(later - earlier >= 2 for earlier, later in pairwise(progress))
    assert [(event.objects_read, event.objects_total) for event in events if event.HasField("step")] == [
        (12, 16),
        (16, 16),
    ]


async def test_objects_are_read_ahead_up_to_a_size_and_each_once(world: World, autojump_clock: MockClock) -> None:
    for number in range(60):
        await world.add(batch((f"{number}", "1")))
    world.store.plan = lambda call: Fault(delay=1.0) if call.kind == "get" and "segment-" in call.key else None
    began = trio.current_time()
    await rewritten(world.service(rewrite_read_ahead_bytes=5 * world.inputs[-1].size), world.merge())
    # The object that is waited for, and five more.
    assert trio.current_time() - began == 60 / 6
    assert sorted(call.key for call in world.store.calls if call.kind == "get" and "segment-" in call.key) == [
        paths.segment_key("ns", "t", 0, one.start) for one in world.inputs
    ]


@pytest.mark.parametrize(("of_the_indexer", "of_the_request"), [(1, 0), (0, 1), (1, 1), (1, 2)])
async def test_rewrites_read_and_store_no_more_bytes_per_second_than_allowed(
    world: World, autojump_clock: MockClock, of_the_indexer: int, of_the_request: int
) -> None:
    for number in range(10):
        await world.add(batch((f"{number}", "1")))
    began, read = trio.current_time(), sum(one.size for one in world.inputs)
    request = world.merge()
    request.bytes_per_second = of_the_request * read
    await rewritten(world.service(rewrite_io_bytes_per_second=of_the_indexer * read), request)
    assert trio.current_time() - began == pytest.approx(1 + _stored_and_read_back(world) / read)


async def test_a_limited_merge_stores_its_object_slowly_and_reads_it_back_in_pieces(
    world: World, autojump_clock: MockClock
) -> None:
    for number in range(5):
        await world.add(batch((f"{number}", "v" * MIB)))
    put_if_absent, seconds = world.store.put_if_absent, []

    async def put(key: str, body: Body, *, send_seconds: float = 0.0) -> str:
        seconds.append(send_seconds)
        return await put_if_absent(key, body)

    world.store.put_if_absent = put  # type: ignore[method-assign]
    request = world.merge(target_bytes=10 * MIB)
    request.bytes_per_second = MIB
    events = await rewritten(world.service(), request)
    [entry] = next(event.step.entries for event in events if event.HasField("step"))
    # Its index, and the object, at no less than 4 MiB/s.
    assert seconds == [pytest.approx(0, abs=0.1), pytest.approx(entry.size / (4 * MIB))]
    assert [call.kind for call in world.store.calls].count("get_range") == 3


async def test_a_limited_merge_is_faster_while_others_wait(world: World, autojump_clock: MockClock) -> None:
    for number in range(10):
        await world.add(batch((f"{number}", "1")))
    began, read = trio.current_time(), sum(one.size for one in world.inputs)
    service = world.service(rewrites=1)
    requests = []
    for attempt in (1, 2):
        requests.append(world.merge())
        requests[-1].attempt, requests[-1].bytes_per_second = attempt, read
    async with trio.open_nursery() as nursery:
        for request in requests:
            nursery.start_soon(rewritten, service, request)
    # The first one may do twice as much, because the second one waits.
    alone = 1 + _stored_and_read_back(world) / 2 / read
    assert trio.current_time() - began == pytest.approx(1.5 * alone)


def _stored_and_read_back(world: World) -> int:
    """Return the bytes of the objects that were stored, and of those that were read back, which indexes are not."""
    stored = {call.key: call.size for call in world.store.calls if call.kind == "put_if_absent" and "~rew" in call.key}
    return sum(stored.values()) + sum(size for key, size in stored.items() if key.endswith(".kfs"))


async def test_a_busy_process_does_other_work_between_reads(world: World, mock_clock: MockClock) -> None:
    for number in range(40):
        await world.add(batch((f"{number}", "1")))
    passes = 0

    async def work() -> None:
        nonlocal passes
        while True:
            mock_clock.jump(0.002)
            passes += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await rewritten(world.service(), world.merge())
        nursery.cancel_scope.cancel()
    # A read rests for eight passes on average, because the order of tasks is random. Without rests, there are 130.
    assert passes >= 250


async def test_an_object_passes_to_and_from_its_process_in_pieces(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = 0

    async def rest() -> None:
        nonlocal rests
        rests += 1
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(runners, "give_way", rest)
    await world.add(batch(("a", "x" * (3 * MIB))))
    await rewritten(world.service(own_process=True), world.merge(target_bytes=4 * MIB))
    # A little more than 3 MiB each: the segment, the new object, and what was read back after it was stored.
    assert rests == 3 * 3


async def test_further_rewrites_wait_without_sending_anything(world: World, autojump_clock: MockClock) -> None:
    await world.add(batch(("a", "1")))
    key, release = await world.add(batch(("b", "1"))), trio.Event()
    world.store.plan = lambda call: Fault(hold=release) if call.key == key else None
    service = world.service()
    first: list[RewriteEvent] = []
    second: list[RewriteEvent] = []

    async def run(events: list[RewriteEvent], attempt: int) -> None:
        request = world.merge()
        request.attempt = attempt
        events += await rewritten(service, request)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, first, 1)
        await wait_all_tasks_blocked()
        nursery.start_soon(run, second, 2)
        await wait_all_tasks_blocked()
        assert (service.counters.rewriting, service.counters.rewrites_waiting) == (1, 1)
        assert world.store.count("get") == 2
        release.set()
    assert first[-1].step.entries[0].attempt == 1
    assert second[-1].step.entries[0].attempt == 2


def _children() -> list[int]:
    """Return the processes in which rewrites run."""
    lists = [(task / "children").read_text().split() for task in Path("/proc/self/task").iterdir()]
    children = [int(child) for some in lists for child in some]
    return [child for child in children if b"services.indexer.rewriting.child" in _proc(child, "cmdline")]


def _proc(process: int, name: str) -> bytes:
    return Path(f"/proc/{process}/{name}").read_bytes()


async def _begun(world: World, nursery: trio.Nursery, events: list[RewriteEvent], service: IndexerService) -> int:
    """Begin a rewrite in its own process whose read is not answered. Return the process id."""
    asked = trio.Event()

    def hold(call: Call) -> Fault | None:
        if call.kind != "get":
            return None
        asked.set()
        return Fault(hold=trio.Event())

    await world.add(batch(("a", "1")))
    world.store.plan = hold

    async def run() -> None:
        events.extend(await rewritten(service, world.merge()))

    nursery.start_soon(run)
    with trio.fail_after(20):
        await asked.wait()
    (child,) = _children()
    return child


async def test_a_cancelled_call_ends_its_process_at_once(world: World) -> None:
    service = world.service(own_process=True)
    async with trio.open_nursery() as nursery:
        child = await _begun(world, nursery, [], service)
        assert os.getpriority(os.PRIO_PROCESS, child) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
        assert _proc(child, "oom_score_adj") == b"1000\n"
        # It cannot react to anything.
        os.kill(child, signal.SIGSTOP)
        nursery.cancel_scope.cancel()
    assert _children() == []
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert service.counters.rewrites == {("merge", "cancelled"): 1}
    assert service.counters.rewriting == 0


async def test_a_process_that_dies_makes_the_rewrite_unavailable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.add(batch(("a", "1")))
    service = world.service(own_process=True)

    def kill(call: Call) -> None:
        if call.kind == "get":
            os.kill(_children()[0], signal.SIGKILL)

    world.store.plan = kill
    status, detail = await failure_of(service, world.merge())
    assert (status, detail) == (Status.UNAVAILABLE, "the process that rewrites ended with status -9")
    assert _children() == []

    monkeypatch.setattr(runners, "_CHILD", "services.indexer.rewriting.no_such_module")
    status, detail = await failure_of(service, world.merge())
    assert (status, detail) == (Status.UNAVAILABLE, "the process that rewrites ended with status 1")

    monkeypatch.setattr(sys, "executable", "/no/such/python")
    status, detail = await failure_of(service, world.merge())
    assert (status, "/no/such/python" in detail) == (Status.UNAVAILABLE, True)


@pytest.mark.parametrize("closed", ["stdin", "stdout"])
def test_the_process_ends_silently_when_the_indexer_dies(closed: str) -> None:
    """The kernel closes both pipes of an indexer that died, one after the other."""
    wanted = RewriteInput(start=0, end=1, epoch=3)
    segment = make_segment([batch(("a", "x" * 1_000_000))], epoch=3).data
    begin, request = BEGIN.pack(NOW_MS, bytes(32)), World().merge([wanted], target_bytes=4 * MIB).SerializeToString()
    command = [sys.executable, "-m", "services.indexer.rewriting.child"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(frame_header(Kind.BEGIN, len(begin)) + begin)
        child.stdin.write(frame_header(Kind.REQUEST, len(request)) + request)
        child.stdin.flush()
        kind, size = parse_frame_header(child.stdout.read(9))
        assert (kind, RewriteInput.FromString(child.stdout.read(size))) == (Kind.READ, wanted)
        # The result is larger than a pipe holds, and nobody reads it.
        child.stdin.write(frame_header(Kind.OBJECT, len(segment)) + segment)
        child.stdin.flush()
        (child.stdin if closed == "stdin" else child.stdout).close()
        assert (child.wait(timeout=20), child.stderr.read()) == (3, b"")


def test_frames_have_bounds() -> None:
    for kind, size in ((Kind.OBJECT, 2**32), (Kind.INDEX, 2**28 + 1)):
        with pytest.raises(Exception, match=f"frame of kind {kind.name}"):
            frame_header(kind, size)
    with pytest.raises(Exception, match="frame of kind 99"):
        parse_frame_header(bytes([99]) + bytes(8))
