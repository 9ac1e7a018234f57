"""docs/reference/groups.md, drawn from the table of the group protocol."""

from collections.abc import Mapping, Sequence

from kafscale.v1.coordinator_pb2 import GroupError as E
from services.coordinator.table import ANSWERS, EXITS, NO_GROUP, STATES, Act, Answer, Ask, Cause, State

_HEAD = """\
# Consumer groups

<!-- Generated from services/coordinator/table.py by `make generate`; do not edit. -->

A group is a state machine without IO (`services/coordinator/`): each operation gives values to persist, replies and
timers; the values are stored first. The tables below are the ones that it uses.

Errors in them are what is answered when member id, group.instance.id and generation are right. Else it is
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION; in a dead group none of them is looked at.
"""

_BOUND = """
## How long a group may be without a coordinator

Groups are divided into 64 shards, and each live coordinator is given some of them. While at least one coordinator
reaches the metadata store, every shard is served within KAFSCALE_LEASE_TTL_SECONDS, KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS
and 5 seconds (20 seconds with the defaults) and the time that reading its groups takes, counted from the last
coordinator that came or went and from the end of the last failure of the metadata store:

- A coordinator that died, or cannot reach the metadata store, loses its lease within KAFSCALE_LEASE_TTL_SECONDS. Then
  another one claims its shards.
- A coordinator that is not given a shard any more stores what is queued for its groups, for up to
  KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS, and releases it. Then the one that is given the shard claims it.
- A claim or a release whose outcome is unknown, or a lease that could not be proven meanwhile, may leave a shard's key
  that names a coordinator which does not have the shard. It notices that within a second: it claims the shard again
  where it is given it, and releases it otherwise. Failed attempts are repeated after 2 seconds at most.

Until then clients are answered COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR, try again, and keep their members and
offsets. Session timeouts start again when the shard is loaded.
"""

_DIFFERENCES = """
## Where it differs from Apache Kafka

- The generation is persisted before JoinGroup is answered, not with the assignment only: a group that loses its
  coordinator between the two goes on with that generation.
- A static member that comes back with other topics than before causes a rebalance; in Kafka only another choice of the
  protocol does. One that comes back has its place in a group of the largest size allowed.
- An offset that is committed in a group that has long been empty is kept for the whole retention.
- A rebalance timeout of 0 stands for the session timeout.
- A member that sends JoinGroup or SyncGroup again while the first one waits gets REBALANCE_IN_PROGRESS for the first.
- An id that was given (MEMBER_ID_REQUIRED) and leaves or expires without having joined causes no rebalance.
- A group has at most 10,000 members (KAFSCALE_GROUP_MAX_SIZE) with 1.2 MB of member ids: its header, one value of the
  metadata store, names all. One more is refused with GROUP_MAX_SIZE_REACHED. When as many clients have been given ids
  and have not joined with them, the oldest id is forgotten for each new one: its client is told UNKNOWN_MEMBER_ID.
- A member names at most 100 protocols and says 1 MB of itself, its client id, group.instance.id and each name have at
  most 32,767 bytes; else it is answered INVALID_REQUEST.
- A commit of more than 4,095 offsets, or of 1.3 MB, takes several transactions of the metadata store. If a coordinator
  dies in between, a part of them is committed; the commit was not answered then.
- Offsets of a deleted topic are not answered any more, in a new topic of its name neither; they are removed at the next
  look for offsets to expire (KAFSCALE_GROUP_OFFSETS_RETENTION_CHECK_INTERVAL_MS), in Kafka at once.
- A gateway that has not seen yet that a topic was deleted and created again commits for the old one. The coordinator
  looks topics up in the metadata store. It refuses such a commit with UNKNOWN_TOPIC_OR_PARTITION from
  KAFSCALE_GROUP_TOPIC_CHECK_MS (10 seconds) after the deletion on, and at once where it would replace an offset of the
  new topic. A commit that is taken before that is forgotten with the old topic. Commits of one group take effect in the
  order in which they reach the coordinator, however long a look-up takes.
- The retention of offsets (KAFSCALE_GROUP_OFFSETS_RETENTION_MINUTES) goes by a clock that coordinators share and keep
  in the metadata store, so a coordinator whose wall clock is days off expires nothing too early. Time in which no
  coordinator runs does not count. The wall clock of the first coordinator that needs it sets this clock once;
  setting a wall clock later does not change it.
- Of protocols with equally many votes the one that came up first among the members' votes is chosen; in Kafka any.
"""


def document() -> str:
    """The whole text."""
    return _HEAD + _picture() + _states() + _answers() + _exits() + _BOUND + _DIFFERENCES


def _picture() -> str:
    lines = ["\n## States\n", "```mermaid", "stateDiagram-v2", f"    [*] --> {State.EMPTY.value}"]
    for state, exits in EXITS.items():
        targets: dict[State, list[str]] = {}
        for cause, target in exits.items():
            targets.setdefault(target, []).append(cause.name.lower())
        lines += [f"    {state.value} --> {target.value}: {', '.join(names)}" for target, names in targets.items()]
    return "\n".join([*lines, f"    {State.DEAD.value} --> [*]", "```", ""])


def _states() -> str:
    rows = [(state.value, meaning) for state, meaning in STATES.items()]
    return "\n" + _table(("State", "Meaning"), rows)


def _answers() -> str:
    columns: Mapping[str, Mapping[Ask, Answer]] = {
        **{state.value: answers for state, answers in ANSWERS.items()},
        "no such group": NO_GROUP,
    }
    rows = [(ask.value, *(_cell(answers[ask]) for answers in columns.values())) for ask in Ask]
    acts = [(act.name.lower(), act.value) for act in Act if act is not Act.REFUSE]
    text = "\n## Answers\n\n" + _table(("Request", *columns), rows)
    return text + "\n" + _table(("Answer", "Meaning"), acts)


def _cell(answer: Answer) -> str:
    error = E.Code.Name(answer.error)
    if answer.act is Act.REFUSE:
        return error
    return answer.act.name.lower() + ("" if answer.error == E.NONE else f", {error}")


def _exits() -> str:
    rows = []
    for cause in Cause:
        targets = [exits.get(cause) for exits in EXITS.values()]
        rows.append((f"{cause.name.lower()}: {cause.value}", *(target.value if target else "" for target in targets)))
    return "\n## Ways out of each state\n\n" + _table(("Cause", *(state.value for state in EXITS)), rows)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, ("---",) * len(heads), *rows))
