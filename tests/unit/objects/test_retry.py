"""Puts that are retried after a lost answer and may conflict with their own first attempt."""

import random

import pytest
from structlog.testing import capture_logs
from trio.testing import MockClock

from kafscale.errors import Unavailable
from kafscale.objects.interface import Body, Pieces, PreconditionFailed
from kafscale.objects.memory import Call, Fault, MemoryObjectStore
from kafscale.objects.retry import RetryingObjectStore


class Lossy:
    """A store that loses the answer to a put, and the store that retries it."""

    def __init__(self) -> None:
        self.inner = MemoryObjectStore()
        self.store = RetryingObjectStore(self.inner, random.Random(1).random)

    def lose_next_put(self, *, applied: bool = True) -> None:
        def plan(call: Call) -> Fault | None:
            if call.kind not in ("put_if_absent", "replace_if_match"):
                return None
            self.inner.plan = None
            return Fault(error=Unavailable("no answer"), applied="before" if applied else "never")

        self.inner.plan = plan


async def test_an_outage_is_logged_after_seconds_and_once(autojump_clock: MockClock) -> None:
    lossy = Lossy()
    lossy.inner.plan = lambda call: Fault(error=Unavailable("connection refused"))
    with capture_logs() as logs, pytest.raises(Unavailable):
        await lossy.store.get("ns/a")
    assert [(entry["key"], entry["error"]) for entry in logs] == [("ns/a", "connection refused")]


@pytest.mark.parametrize("mine", [b"mine", Pieces([b"mi", b"ne"])])
async def test_a_put_that_conflicts_with_its_own_first_attempt_has_succeeded(
    autojump_clock: MockClock, mine: Body
) -> None:
    lossy = Lossy()
    lossy.lose_next_put()
    etag = await lossy.store.put_if_absent("ns/a", mine)
    assert (await lossy.inner.get("ns/a")).etag == etag
    lossy.lose_next_put()
    etag = await lossy.store.replace_if_match("ns/a", b"mine too", etag)
    found = await lossy.inner.get("ns/a")
    assert (found.body, found.etag) == (b"mine too", etag)


async def test_the_object_of_another_process_is_never_mistaken_for_ones_own(autojump_clock: MockClock) -> None:
    lossy = Lossy()
    await lossy.inner.put_if_absent("ns/a", b"theirs")
    lossy.lose_next_put(applied=False)
    with pytest.raises(PreconditionFailed):
        await lossy.store.put_if_absent("ns/a", b"mine")
    with pytest.raises(PreconditionFailed):
        await lossy.store.put_if_absent("ns/a", b"theirs")
