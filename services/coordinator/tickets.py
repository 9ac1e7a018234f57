"""Requests that wait for their answer. Each takes one entry of a dict, and no thread or object besides its task."""

from collections.abc import Callable
from itertools import count

import trio
from google.protobuf.message import Message

from kafscale.errors import KafscaleError
from kafscale.v1.coordinator_pb2 import GroupError as E


class NotServed(KafscaleError):
    """This coordinator cannot serve the group now. ``owner`` is the run that may be able to, if known."""

    def __init__(self, code: "E.Code", owner: str = "") -> None:
        super().__init__(E.Code.Name(code))
        self.code = code
        self.owner = owner


class Tickets:
    """Waiting requests by ticket. A ticket is open until its request has its answer or is cancelled.

    Answers to closed tickets are dropped.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        # The state of each ticket: None, its waiting task, or its answer.
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
        """Answer a ticket. Only the first answer counts."""
        if ticket not in self._open:
            return
        found = self._open[ticket]
        if found is None or isinstance(found, trio.lowlevel.Task):
            self._open[ticket] = answer
            if found is not None:
                trio.lowlevel.reschedule(found)

    async def wait(self, ticket: int) -> Message | NotServed:
        """Wait for the answer, return it and close the ticket."""
        try:
            if self._open[ticket] is None:

                def abort(_: Callable[[], object]) -> trio.lowlevel.Abort:
                    # Cancellation wakes the task. An answer in the same event loop turn must not wake it again.
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
