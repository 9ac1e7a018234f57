"""The audit log: who was allowed or denied what, by which rule.

Its lines are in the log of the process, whatever the level of that log is.
"""

import logging
from collections.abc import Callable

import structlog
import trio

from kafscale.security.acls import Decision, Operation
from kafscale.security.asks import Ask
from kafscale.security.principals import Principal

OFF, DENIED, CHANGES, ALL = LEVELS = ("off", "denied", "changes", "all")
_USE = frozenset(
    (
        Operation.READ,
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.CLUSTER_ACTION,
        Operation.IDEMPOTENT_WRITE,
    )
)
"""Operations that change no topic, group, config, user or ACL."""
_AUDITED = {
    OFF: frozenset[Operation](),
    DENIED: frozenset[Operation](),
    CHANGES: frozenset(Operation) - _USE,
    ALL: frozenset(Operation),
}
_MOST_PRINCIPALS = 10_000
_LONGEST = 255
"""Characters of a name in a line. Clients choose names."""
_WINDOW_SECONDS = 1.0


class AuditLog:
    """``level``: one of LEVELS. At most ``lines_per_second`` lines about a principal are written in a second."""

    def __init__(self, level: str, lines_per_second: int, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._denials = level != OFF
        self._allowed = _AUDITED[level]
        self._most = lines_per_second
        self._log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET))
        self._clock = clock
        # Of each principal: when the current second began, and the lines in it. Then those that were omitted before.
        self._windows: dict[Principal, tuple[float, int]] = {}
        self._omitted: dict[Principal, int] = {}

    def decided(self, decision: Decision, principal: Principal, host: str, ask: Ask, name: str, **caller: str) -> None:
        """Log a decision, if it is to be logged. ``caller``: what else is known of who asks."""
        if not (ask.operation in self._allowed if decision.allowed else self._denials):
            return
        began, lines = self._windows.pop(principal, (0.0, 0))
        now = self._clock()
        if now >= began + _WINDOW_SECONDS:
            began, lines = now, 0
        while len(self._windows) >= _MOST_PRINCIPALS:
            oldest = next(iter(self._windows))
            del self._windows[oldest]
            self._omitted.pop(oldest, None)
        self._windows[principal] = began, lines + 1
        if lines >= self._most:
            self._omitted[principal] = self._omitted.get(principal, 0) + 1
            return
        omitted = self._omitted.pop(principal, 0)
        self._log.info(
            "access",
            principal=_cut(str(principal)),
            host=host,
            **{what: _cut(value) for what, value in caller.items()},
            operation=ask.operation.name,
            resource=f"{ask.type.name}:{_cut(name)}",
            decision="allowed" if decision.allowed else "denied",
            rule=decision.rule,
            **({"omitted": omitted} if omitted else {}),
        )


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
