"""The context of one operation on one group, and the steps that operations share."""

from dataclasses import dataclass

from google.protobuf.message import Message

from kafscale.v1.coordinator_pb2 import GroupError as E
from kafscale.v1.coordinator_pb2 import JoinGroupReply, SyncGroupReply
from services.coordinator.effects import Effects, Now, Reply, Timer, TimerKind
from services.coordinator.group import Group
from services.coordinator.limits import GroupLimits
from services.coordinator.member import Member
from services.coordinator.table import ANSWERS, Answer, Ask, Cause, State


@dataclass(frozen=True, slots=True)
class Turn:
    group: Group
    limits: GroupLimits
    now: Now
    effects: Effects

    def answer_to(self, ask: Ask) -> Answer:
        """Return the table's answer to this request in the group's state."""
        return ANSWERS[self.group.state][ask]

    def refusal(self, ask: Ask, member_id: str, instance_id: str | None, generation: int) -> "E.Code":
        """Return the error with which a member's request is answered, or NONE."""
        answer = self.answer_to(ask)
        if self.group.state is State.DEAD:
            return answer.error
        error = self.group.membership_error(member_id, instance_id)
        if error != E.NONE:
            return error
        return E.ILLEGAL_GENERATION if generation != self.group.generation else answer.error

    def reply(self, ticket: int, message: Message) -> None:
        self.effects.replies.append(Reply(ticket, message))

    def move(self, cause: Cause) -> None:
        self.group.move(cause, self.now.wall_ms)

    def set_timer(self, timer: Timer, after_ms: int) -> None:
        self.group.deadlines[timer] = self.effects.timers[timer] = self.now.timer_ms + after_ms

    def cancel_timer(self, timer: Timer) -> None:
        if self.group.deadlines.pop(timer, None) is not None:
            self.effects.timers[timer] = None

    def keep_session(self, member: Member) -> None:
        """Restart a member's session timeout."""
        self.set_timer(Timer(TimerKind.SESSION, member.member_id), member.session_timeout_ms)

    def drop_pending(self, member_id: str) -> None:
        """Remove an assigned id that no member has used yet."""
        self.group.forget_id(member_id)
        self.cancel_timer(Timer(TimerKind.SESSION, member_id))

    def drop_member(self, member_id: str, error: "E.Code" = E.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member and answer its waiting requests with ``error``."""
        self.end_waits(member_id, error)
        self.cancel_timer(Timer(TimerKind.SESSION, member_id))
        self.group.remove(member_id)

    def end_waits(self, member_id: str, error: "E.Code") -> None:
        """Answer a member's waiting requests with ``error``."""
        join = self.group.joining.pop(member_id, None)
        if join is not None:
            # After UNKNOWN_MEMBER_ID a client joins again without an id.
            known = "" if error == E.UNKNOWN_MEMBER_ID else member_id
            self.reply(join, JoinGroupReply(error=error, generation=-1, member_id=known))
        sync = self.group.syncing.pop(member_id, None)
        if sync is not None:
            self.reply(sync, SyncGroupReply(error=error))

    def die(self, cause: Cause, error: "E.Code") -> None:
        """Change to Dead: answer all waiting requests with ``error`` and cancel all timers."""
        for member_id in [*self.group.joining, *self.group.syncing]:
            self.end_waits(member_id, error)
        for timer in list(self.group.deadlines):
            self.cancel_timer(timer)
        self.move(cause)
