"""Measures for how long the handler of a request runs on the event loop, without the time in which it waits."""

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

from services.gateway.quotas.enforcement import Charge

Work = Coroutine[Any, Any, None]
Request = TypeVar("Request")


def metered(charge: Charge, handle: Callable[[Request], Work | None], request: Request) -> Work | None:
    """Call ``handle``, and return its coroutine, if any, such that the time of both is measured.

    Child tasks of the coroutine are not measured.
    """
    charge.resumed()
    try:
        work = handle(request)
    finally:
        charge.paused()
    return None if work is None else _metered(charge, work)


@coroutine
def _steps(charge: Charge, work: Work) -> Generator[Any, Any, None]:
    """Run a coroutine as `await` does, and measure each of its steps."""
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        charge.resumed()
        try:
            trap = work.send(sent) if thrown is None else work.throw(thrown)
        except StopIteration:
            return
        finally:
            charge.paused()
        sent = thrown = None
        try:
            sent = yield trap
        except BaseException as error:  # noqa: BLE001  thrown into the coroutine, as by await
            thrown = error


async def _metered(charge: Charge, work: Work) -> None:
    await _steps(charge, work)
