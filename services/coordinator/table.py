"""The classic group protocol as tables: the answer to each request in each state, and all state transitions.

The state machine uses these tables, and docs/reference/groups.md is generated from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kafscale.v1.coordinator_pb2 import GroupError as E


class State(Enum):
    """The states of a group, with Kafka's names as values."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


STATES: Mapping[State, str] = {
    State.EMPTY: "The group has no members. Once it has no offsets, the next check for expired offsets deletes it.",
    State.PREPARING: "Members join. Each JoinGroup waits until all members have joined, or for the rebalance timeout.",
    State.COMPLETING: "A new generation exists. Members wait for the leader's assignment.",
    State.STABLE: "Every member has its assignment or can fetch it.",
    State.DEAD: "The group was deleted or moved to another coordinator. It does not leave this state.",
}


class Ask(Enum):
    """The kinds of requests that the tables distinguish. Values are their names in documents."""

    JOIN_NEW = "JoinGroup of a new member"
    JOIN_STATIC = "JoinGroup of a known group.instance.id without member id"
    JOIN_KNOWN = "JoinGroup of a member"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit of a member"
    COMMIT_SIMPLE = "OffsetCommit without membership"
    FETCH = "OffsetFetch"
    DELETE_OFFSETS = "OffsetDelete"
    DESCRIBE = "DescribeGroups"
    DELETE = "DeleteGroups"


class Act(Enum):
    """What a request does. Values are the explanations in documents."""

    REFUSE = "The request is refused."
    ADD = (
        "The member is added and waits for the others. From version 4 on, it first receives its id with "
        "MEMBER_ID_REQUIRED."
    )
    AWAIT = "The member waits for the others."
    REPLACE = (
        "The member takes the old member's place and assignment, and the old member is fenced. There is no rebalance "
        "if the chosen protocol and the subscription stay the same."
    )
    REPLACE_AND_AWAIT = "The member takes the old member's place and waits for the others. The old member is fenced."
    UNLESS_CHANGED = "The response is the current generation. If the member's protocols changed, it starts a rebalance."
    UNLESS_LEADER = (
        "The response is the current generation. If the member is the leader or its protocols changed, it starts a "
        "rebalance."
    )
    AWAIT_ASSIGNMENT = (
        "The member waits for the leader's assignment. The leader's request stores it and answers all that wait."
    )
    ASSIGNMENT = "The response is the member's assignment."
    ALIVE = "The member's session timeout starts again."
    REMOVE = "The members named in the request are removed."
    STORE = "The offsets are stored."
    READ = "The response contains the committed offsets."
    NOTHING = "The response contains offset -1 for each partition."
    DELETE_ALL = "The offsets are deleted."
    DELETE_UNSUBSCRIBED = (
        "The offsets of topics that no member subscribes to are deleted. The other topics get "
        "GROUP_SUBSCRIBED_TO_TOPIC. A group whose protocol type is not consumer gets NON_EMPTY_GROUP."
    )
    DESCRIBED = "The response describes the group."
    DELETE_GROUP = "The group is deleted with all its offsets."


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request. ``error`` applies once member id, group.instance.id and generation are valid."""

    act: Act
    error: "E.Code" = E.NONE


class Cause(Enum):
    """Why a group leaves a state. Values are the explanations in documents."""

    NEW_MEMBER = "a member joins"
    REJOINED = "the leader joins again, or another member does with different protocols"
    REPLACED = "a static member returns and the generation cannot be kept"
    LEFT = "a member leaves"
    SESSION_OVER = "a member's session times out"
    SYNC_OVER = "members have not sent SyncGroup within the rebalance timeout"
    TOO_MANY = "the group was loaded with more members than group.max.size allows"
    JOINED = "all members have joined, or the waiting time is over and some have"
    NONE_LEFT = "no member is left"
    ASSIGNED = "the leader sends its assignment"
    DELETED = "DeleteGroups"
    EXPIRED = "the group has no offsets, or the last one expired"
    UNLOADED = "the group is unloaded, for example because it moves to another coordinator"


def _refuse(error: "E.Code") -> Answer:
    return Answer(Act.REFUSE, error)


_ALWAYS: Mapping[Ask, Answer] = {Ask.FETCH: Answer(Act.READ), Ask.DESCRIBE: Answer(Act.DESCRIBED)}
_WITH_MEMBERS: Mapping[Ask, Answer] = {
    **_ALWAYS,
    Ask.JOIN_NEW: Answer(Act.ADD),
    Ask.LEAVE: Answer(Act.REMOVE),
    Ask.COMMIT_SIMPLE: _refuse(E.UNKNOWN_MEMBER_ID),
    Ask.DELETE_OFFSETS: Answer(Act.DELETE_UNSUBSCRIBED),
    Ask.DELETE: _refuse(E.NON_EMPTY_GROUP),
}
_GONE = _refuse(E.COORDINATOR_NOT_AVAILABLE)

ANSWERS: Mapping[State, Mapping[Ask, Answer]] = {
    State.EMPTY: {
        **_ALWAYS,
        Ask.JOIN_NEW: Answer(Act.ADD),
        Ask.JOIN_STATIC: _refuse(E.UNKNOWN_MEMBER_ID),
        Ask.JOIN_KNOWN: _refuse(E.UNKNOWN_MEMBER_ID),
        Ask.SYNC: _refuse(E.UNKNOWN_MEMBER_ID),
        Ask.HEARTBEAT: _refuse(E.UNKNOWN_MEMBER_ID),
        Ask.LEAVE: Answer(Act.REMOVE),
        Ask.COMMIT: _refuse(E.UNKNOWN_MEMBER_ID),
        Ask.COMMIT_SIMPLE: Answer(Act.STORE),
        Ask.DELETE_OFFSETS: Answer(Act.DELETE_ALL),
        Ask.DELETE: Answer(Act.DELETE_GROUP),
    },
    State.PREPARING: {
        **_WITH_MEMBERS,
        Ask.JOIN_STATIC: Answer(Act.REPLACE_AND_AWAIT),
        Ask.JOIN_KNOWN: Answer(Act.AWAIT),
        Ask.SYNC: _refuse(E.REBALANCE_IN_PROGRESS),
        Ask.HEARTBEAT: Answer(Act.ALIVE, E.REBALANCE_IN_PROGRESS),
        Ask.COMMIT: Answer(Act.STORE),
    },
    State.COMPLETING: {
        **_WITH_MEMBERS,
        Ask.JOIN_STATIC: Answer(Act.REPLACE_AND_AWAIT),
        Ask.JOIN_KNOWN: Answer(Act.UNLESS_CHANGED),
        Ask.SYNC: Answer(Act.AWAIT_ASSIGNMENT),
        Ask.HEARTBEAT: Answer(Act.ALIVE),
        Ask.COMMIT: _refuse(E.REBALANCE_IN_PROGRESS),
    },
    State.STABLE: {
        **_WITH_MEMBERS,
        Ask.JOIN_STATIC: Answer(Act.REPLACE),
        Ask.JOIN_KNOWN: Answer(Act.UNLESS_LEADER),
        Ask.SYNC: Answer(Act.ASSIGNMENT),
        Ask.HEARTBEAT: Answer(Act.ALIVE),
        Ask.COMMIT: Answer(Act.STORE),
    },
    State.DEAD: {
        **dict.fromkeys(Ask, _GONE),
        Ask.FETCH: Answer(Act.NOTHING),
        Ask.DELETE_OFFSETS: _refuse(E.GROUP_ID_NOT_FOUND),
        Ask.DESCRIBE: Answer(Act.DESCRIBED, E.GROUP_ID_NOT_FOUND),
        Ask.DELETE: _refuse(E.GROUP_ID_NOT_FOUND),
    },
}

NO_GROUP: Mapping[Ask, Answer] = {
    Ask.JOIN_NEW: Answer(Act.ADD),
    Ask.JOIN_STATIC: Answer(Act.ADD),
    Ask.JOIN_KNOWN: _refuse(E.UNKNOWN_MEMBER_ID),
    Ask.SYNC: _refuse(E.UNKNOWN_MEMBER_ID),
    Ask.HEARTBEAT: _refuse(E.UNKNOWN_MEMBER_ID),
    Ask.LEAVE: _refuse(E.UNKNOWN_MEMBER_ID),
    Ask.COMMIT: _refuse(E.GROUP_ID_NOT_FOUND),
    Ask.COMMIT_SIMPLE: Answer(Act.STORE),
    Ask.FETCH: Answer(Act.NOTHING),
    Ask.DELETE_OFFSETS: _refuse(E.GROUP_ID_NOT_FOUND),
    Ask.DESCRIBE: Answer(Act.DESCRIBED, E.GROUP_ID_NOT_FOUND),
    Ask.DELETE: _refuse(E.GROUP_ID_NOT_FOUND),
}
"""The answers for a group that does not exist."""

_REBALANCE = dict.fromkeys(
    (
        Cause.NEW_MEMBER,
        Cause.REJOINED,
        Cause.REPLACED,
        Cause.LEFT,
        Cause.SESSION_OVER,
        Cause.SYNC_OVER,
        Cause.TOO_MANY,
    ),
    State.PREPARING,
)
_UNLOADED = {Cause.UNLOADED: State.DEAD}

EXITS: Mapping[State, Mapping[Cause, State]] = {
    State.EMPTY: {
        Cause.NEW_MEMBER: State.PREPARING,
        Cause.DELETED: State.DEAD,
        Cause.EXPIRED: State.DEAD,
        **_UNLOADED,
    },
    State.PREPARING: {Cause.JOINED: State.COMPLETING, Cause.NONE_LEFT: State.EMPTY, **_UNLOADED},
    State.COMPLETING: {Cause.ASSIGNED: State.STABLE, **_REBALANCE, **_UNLOADED},
    State.STABLE: {**_REBALANCE, **_UNLOADED},
    State.DEAD: {},
}
