"""The effects of an operation on a group: values to persist, replies, timers. The caller applies them.

For each group, in the order of its operations, the caller

1. writes ``stage``, values that nothing refers to yet, in one or more transactions;
2. writes ``commit``, the header and offsets; a header comes first and in one transaction;
3. sends ``replies``, once this and all earlier operations of the group are known to be stored;
4. deletes ``sweep``, keys that are no longer referenced. The next load of the group finds those not deleted.

Every transaction compares the shard's key and the group's header. If a write is refused, or its outcome stays unknown,
the caller unloads the group (`Groups.unload`) and loads it again. Timers are set and cancelled at once; when one goes
off, the caller calls `Groups.expire`.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from google.protobuf.message import Message


class Now(NamedTuple):
    """The current time on two clocks, in milliseconds."""

    timer_ms: int  # monotonic, valid in this process only
    wall_ms: int  # since 1970, on the clock that coordinators share; used in persisted values


class TimerKind(Enum):
    SESSION = "session"  # of a member
    JOIN = "join"  # of the group: the rebalance's first phase
    SYNC = "sync"  # of the group: its second phase


class Timer(NamedTuple):
    """The name of a timer. A group has at most one timer of each name; setting it again moves it."""

    kind: TimerKind
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A value for the metadata store; None deletes the key."""

    key: str
    value: Message | None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the request with this ticket. Each ticket is answered once."""

    ticket: int
    message: Message


@dataclass(slots=True)
class Effects:
    """The effects of one operation. ``timers`` has the time of each timer that is set, None for each cancelled one."""

    stage: list[Record] = field(default_factory=list)
    commit: list[Record] = field(default_factory=list)
    sweep: list[str] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: dict[Timer, int | None] = field(default_factory=dict)
    generations: int = 0  # number of generations created, for metrics

    @property
    def writes(self) -> bool:
        return bool(self.stage or self.commit)
