"""Requests that wait for their answer: one entry of a dict each, no thread and no object besides their task."""

from collections.abc import Callable
from itertools import count

import trio
from google.protobuf.message import Message

from kafscale.errors import KafscaleError
from kafscale.v1.coordinator_pb2 import GroupError as E


class NotServed(KafscaleError):
    """This coordinator cannot answer for the group now; ``owner``: the run that may, where that is known."""

    def __init__(self, code: "E.Code", owner: str = "") -> None:
        super().__init__(E.Code.Name(code))
        self.code = code
        self.owner = owner


class Tickets:
    """A ticket is open until its request has taken the answer or is gone; answers to others are dropped."""

    def __init__(self) -> None:
        self._numbers = count(1)
        # What each has got: nothing, its task that waits, or its answer.
        self._open: dict[int, trio.lowlevel.Task | Message | NotServed | None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self) -> int:
        ticket = next(self._numbers)
        self._open[ticket] = None
        return ticket

    def close(self, ticket: int) -> None:
        self._open.pop(ticket, None)

    def settle(self, ticket: int, answer: Message | NotServed) -> None:
        """The first answer counts."""
        if ticket not in self._open:
            return
        found = self._open[ticket]
        if found is None or isinstance(found, trio.lowlevel.Task):
            self._open[ticket] = answer
            if found is not None:
                trio.lowlevel.reschedule(found)

    async def wait(self, ticket: int) -> Message | NotServed:
        """The answer; the ticket is closed then."""
        try:
            if self._open[ticket] is None:

                def abort(_: Callable[[], object]) -> trio.lowlevel.Abort:
                    # The task wakes by this; an answer in the same turn of the event loop must not wake it again.
                    self.close(ticket)
                    return trio.lowlevel.Abort.SUCCEEDED

                self._open[ticket] = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(abort)
            answer = self._open[ticket]
        finally:
            self.close(ticket)
        if isinstance(answer, Message | NotServed):
            return answer
        raise RuntimeError(f"ticket {ticket} has no answer")
