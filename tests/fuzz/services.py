"""Calls of the indexer and of a coordinator in this process, whose ports ``kafscale run`` does not open.

The messages are unusual or damaged. A call may be answered, wait, or fail with a KafscaleError.
"""

import logging
import traceback
from collections.abc import Callable
from random import Random

import structlog
import trio
from google.protobuf.message import DecodeError, Message

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.objects.memory import MemoryObjectStore
from kafscale.rpc.methods import BoundService
from kafscale.rpc.services import bind_coordinator, bind_indexer
from kafscale.segment.index import build_index
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings
from tests.fuzz.finding import Finding
from tests.fuzz.messages import Messages
from tests.fuzz.mutation import mutated
from tests.fuzz.records import batches
from tests.support.coordinator.harness import subscription
from tests.support.coordinator.shell import coordinators
from tests.support.samples.segments import small_segment

NAME = "services"
_CALL_SECONDS = 0.1
"""Members of a group wait for others much longer."""
_MOST_FINDINGS = 20
_PROGRESS_SECONDS = 10.0
_DAMAGED = 0.2


async def run(seed: int, iterations: range, seconds: float, say: Callable[[str], None]) -> list[Finding]:
    """Call methods for some time and return what was found."""
    found: list[Finding] = []
    # Refused calls are logged, and contain what was sent.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    async with coordinators(MemoryMetadataStore(), "a:1") as made:
        bound = [bind_coordinator(made.instances[0].service), bind_indexer(await _indexer())]
        end = shown = trio.current_time()
        end += seconds
        for iteration in iterations:
            finding = await _called(bound, Random(f"{seed}/{NAME}/{iteration}"), iteration)
            if finding is not None:
                found.append(finding)
            now = trio.current_time()
            if now - shown > _PROGRESS_SECONDS:
                shown = now
                say(f"{NAME}: {iteration - iterations.start} calls, {len(found)} findings")
            if now > end or len(found) >= _MOST_FINDINGS:
                break
    return found


async def _indexer() -> IndexerService:
    """An indexer of a log with one segment."""
    objects, built = MemoryObjectStore(), small_segment(base_offset=0)
    await objects.put_if_absent(paths.segment_key("ns", "t", 0, 0), built.data)
    await objects.put_if_absent(paths.index_key("ns", "t", 0, 0), build_index(built.offsets, built.positions, 2))
    return IndexerService(objects, "ns", IndexerSettings())


async def _called(bound: list[BoundService], random: Random, iteration: int) -> Finding | None:
    service = random.choice(bound)
    path, (method, handler) = random.choice(sorted(service.methods.items()))
    messages = Messages(("t", "g", "range", "consumer", "m"), (subscription("t"), *batches()))
    data = messages.random(random, method.request).SerializeToString()
    if random.random() < _DAMAGED:
        data = mutated(random, data)
    try:
        request = method.request.FromString(data)
    except DecodeError:
        return None
    try:
        with trio.move_on_after(_CALL_SECONDS):
            await (handler(request, _dropped) if method.streams else handler(request))
    except KafscaleError:
        return None
    except Exception:  # noqa: BLE001  that is what is looked for
        return Finding(f"{NAME}: {path}", iteration, traceback.format_exc(), data)
    return None


async def _dropped(_: Message) -> None:
    await trio.lowlevel.checkpoint()
