"""One operation on one group: the group, the moment, what is to be done, and the steps that most operations share."""

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
        """What the table says."""
        return ANSWERS[self.group.state][ask]

    def refusal(self, ask: Ask, member_id: str, instance_id: str | None, generation: int) -> "E.Code":
        """Why a member's request is answered with an error; NONE when it is not."""
        answer = self.answer_to(ask)
        if self.group.state is State.DEAD:
            return answer.error
        stranger = self.group.stranger(member_id, instance_id)
        if stranger != E.NONE:
            return stranger
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
        """A member has shown that it is alive."""
        self.set_timer(Timer(TimerKind.SESSION, member.member_id), member.session_timeout_ms)

    def drop_pending(self, member_id: str) -> None:
        """Forget an id that was given."""
        self.group.forget_id(member_id)
        self.cancel_timer(Timer(TimerKind.SESSION, member_id))

    def drop_member(self, member_id: str, error: "E.Code" = E.UNKNOWN_MEMBER_ID) -> None:
        """Forget a member; what it waits for is answered."""
        self.end_waits(member_id, error)
        self.cancel_timer(Timer(TimerKind.SESSION, member_id))
        self.group.remove(member_id)

    def end_waits(self, member_id: str, error: "E.Code") -> None:
        """Answer what a member waits for with an error."""
        join = self.group.joining.pop(member_id, None)
        if join is not None:
            # A member that is told so begins anew, without its id.
            known = "" if error == E.UNKNOWN_MEMBER_ID else member_id
            self.reply(join, JoinGroupReply(error=error, generation=-1, member_id=known))
        sync = self.group.syncing.pop(member_id, None)
        if sync is not None:
            self.reply(sync, SyncGroupReply(error=error))

    def die(self, cause: Cause, error: "E.Code") -> None:
        """To Dead: everything that waits is answered, no timer is left."""
        for member_id in [*self.group.joining, *self.group.syncing]:
            self.end_waits(member_id, error)
        for timer in list(self.group.deadlines):
            self.cancel_timer(timer)
        self.move(cause)
