"""The audit log: which decisions are logged, how, and how many."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from kafscale.audit import AuditLog
from kafscale.security.acls import Decision
from kafscale.security.asks import DELETE_TOPIC, READ_TOPIC, Ask
from kafscale.security.principals import Principal, user

ANN, BOB = user("ann"), user("bob")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def decided(log: AuditLog, ask: Ask, *, allowed: bool = False, principal: Principal = ANN, times: int = 1) -> list[Any]:
    with capture_logs() as logged:
        for _ in range(times):
            log.decided(Decision(allowed, "because"), principal, "10.0.0.1", ask, "t", client_id="app")
    return list(logged)


def test_a_line() -> None:
    (line,) = decided(AuditLog("denied", 10, clock=Clock()), READ_TOPIC)
    assert line == {
        "event": "access",
        "log_level": "info",
        "principal": "User:ann",
        "host": "10.0.0.1",
        "client_id": "app",
        "operation": "READ",
        "resource": "TOPIC:t",
        "decision": "denied",
        "rule": "because",
    }


def test_long_names_are_cut() -> None:
    log = AuditLog("denied", 10, clock=Clock())
    with capture_logs() as logged:
        log.decided(Decision(False, "because"), ANN, "10.0.0.1", READ_TOPIC, "t" * 100_000, client_id="c" * 100_000)
    assert len(str(logged)) < 1000


@pytest.mark.parametrize(
    ("level", "logged"),
    [
        ("off", (0, 0, 0)),
        ("denied", (1, 0, 0)),
        ("changes", (1, 0, 1)),
        ("all", (1, 1, 1)),
    ],
)
def test_levels(level: str, logged: tuple[int, int, int]) -> None:
    log = AuditLog(level, 10, clock=Clock())
    reads, changes = (decided(log, ask, allowed=True) for ask in (READ_TOPIC, DELETE_TOPIC))
    assert (len(decided(log, READ_TOPIC)), len(reads), len(changes)) == logged


def test_lines_of_a_principal_are_limited_and_counted() -> None:
    clock = Clock()
    log = AuditLog("denied", 3, clock=clock)
    assert len(decided(log, READ_TOPIC, times=10)) == 3
    assert len(decided(log, READ_TOPIC, principal=BOB)) == 1
    clock.now += 1
    first, second = decided(log, READ_TOPIC, times=2)
    assert (first["omitted"], "omitted" in second) == (7, False)
