"""The result of one simulated seed."""

from collections import Counter
from dataclasses import dataclass, field

from tests.support.checker import Violation


@dataclass(slots=True)
class Result:
    """``violations`` of promises, how often each fault occurred, what clients did, and the trace with its digest."""

    seed: int
    violations: list[Violation] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    records_acked: int = 0
    records_read: int = 0
    group_commits: int = 0
    group_assignments: int = 0
    seconds: float = 0.0
    trace: list[str] = field(default_factory=list)
    digest: str = ""
