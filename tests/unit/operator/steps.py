"""Changes of a simulated environment, and a stop of the process at any of them."""

from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """The process was killed."""


class Steps:
    """Counts changes, and kills the process before or after a given one."""

    def __init__(self) -> None:
        self.done = 0
        self.last: int | None = None
        self.applied = True

    def take(self, change: Callable[[], Any]) -> Any:
        self.done += 1
        ends = self.done == self.last
        if ends and not self.applied:
            raise Killed
        answer = change()
        if ends:
            raise Killed
        return answer
