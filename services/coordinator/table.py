"""The classic group protocol as a table: for each state what each request is answered, and every way out.

The machine looks its answers and transitions up here, and docs/reference/groups.md is drawn from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kafscale.v1.coordinator_pb2 import GroupError as E


class State(Enum):
    """Values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


STATES: Mapping[State, str] = {
    State.EMPTY: "No members; there while it has offsets, or until the next check when it has none.",
    State.PREPARING: "Members join; each JoinGroup waits until all have, or until the rebalance timeout.",
    State.COMPLETING: "The generation is made; members wait for the leader's assignment.",
    State.STABLE: "Every member has, or can fetch, its assignment.",
    State.DEAD: "Deleted, or given to another coordinator; nothing leads back.",
}


class Ask(Enum):
    """Requests, as far as they are answered differently; values are their names in documents."""

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
    """What is done; values say it in documents."""

    REFUSE = "refused"
    ADD = "added, waits for the others (from v4 on it is first given its id: MEMBER_ID_REQUIRED)"
    AWAIT = "waits for the others"
    REPLACE = (
        "takes the old member's place and assignment, without a rebalance where the chosen protocol and the "
        "subscription stay; the old member is fenced"
    )
    REPLACE_AND_AWAIT = "takes the old member's place, waits for the others; the old member is fenced"
    UNLESS_CHANGED = "told the present generation again; with other protocols than before: waits for a rebalance"
    UNLESS_LEADER = "told the present generation again; the leader, or with other protocols: waits for a rebalance"
    AWAIT_ASSIGNMENT = "waits for the leader's assignment; the leader's is stored and given to all"
    ASSIGNMENT = "the member's assignment"
    ALIVE = "the session goes on"
    REMOVE = "each member named is removed"
    STORE = "stored"
    READ = "what is committed"
    NOTHING = "offset -1 for each partition"
    DELETE_ALL = "deleted"
    DELETE_UNSUBSCRIBED = (
        "deleted for topics that nobody subscribes to, else GROUP_SUBSCRIBED_TO_TOPIC; other protocol types than "
        "consumer: NON_EMPTY_GROUP"
    )
    DESCRIBED = "described"
    BURY = "deleted with all its offsets"


@dataclass(frozen=True, slots=True)
class Answer:
    """``error`` is answered once member id, group.instance.id and generation were found to be right."""

    act: Act
    error: "E.Code" = E.NONE


class Cause(Enum):
    """Why a group leaves a state; values say it in documents."""

    NEW_MEMBER = "a member joins"
    REJOINED = "a member joins again with other protocols, or the leader does"
    REPLACED = "a static member comes back and the generation cannot stay"
    LEFT = "a member leaves"
    SESSION_OVER = "a member's session times out"
    SYNC_OVER = "members have not sent SyncGroup within the rebalance timeout"
    TOO_MANY = "more members were loaded than group.max.size allows"
    JOINED = "all have joined, or some have and the time is over"
    NONE_LEFT = "no member is left"
    ASSIGNED = "the leader's assignment comes"
    DELETED = "DeleteGroups"
    EXPIRED = "it has no offsets, or the last one expired"
    UNLOADED = "another coordinator has the group"


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
        Ask.DELETE: Answer(Act.BURY),
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
"""What is answered where there is no group of the name."""

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
