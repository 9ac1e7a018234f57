"""What an operation on a group wants done: values to persist, replies, timers. Nothing of it is done here.

The caller's part, for each group in the order of its operations:

1. ``stage``: values that nothing refers to yet, in as many transactions as they take;
2. ``commit``: the header and offsets, the header first and in one transaction where there is one;
3. ``replies``: only when this and everything earlier of the group is known to be stored;
4. ``sweep``: keys that nothing refers to any more; whoever loads the group finds those that were left.

Every transaction compares the shard's key and the group's header. A write that was refused, or whose outcome stays
unknown, ends the group here: `Group.unload`, and it is loaded anew. Timers are set and cancelled at once; one that goes
off comes back by `expire`.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from google.protobuf.message import Message


class Now(NamedTuple):
    """One moment on two clocks, in milliseconds."""

    timer_ms: int  # never goes back; of this process only
    wall_ms: int  # since 1970, of the clock that coordinators share; for what is persisted


class TimerKind(Enum):
    SESSION = "session"  # of a member
    JOIN = "join"  # of the group: the rebalance's first phase
    SYNC = "sync"  # of the group: its second phase


class Timer(NamedTuple):
    """A group has one timer of each name: setting it again moves it."""

    kind: TimerKind
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A value of the metadata store; None deletes the key."""

    key: str
    value: Message | None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the request that was given this ticket; each ticket is answered once."""

    ticket: int
    message: Message


@dataclass(slots=True)
class Effects:
    """What operations add up to; ``timers`` has a time for each that is set, None for each that is cancelled."""

    stage: list[Record] = field(default_factory=list)
    commit: list[Record] = field(default_factory=list)
    sweep: list[str] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: dict[Timer, int | None] = field(default_factory=dict)
    generations: int = 0  # that were made, for metrics

    @property
    def writes(self) -> bool:
        return bool(self.stage or self.commit)
