"""Generates docs/reference/groups.md from the transition table of the group protocol."""

from collections.abc import Mapping, Sequence

from kafscale.v1.coordinator_pb2 import GroupError as E
from services.coordinator.table import ANSWERS, EXITS, NO_GROUP, STATES, Act, Answer, Ask, Cause, State

_HEAD = """\
# Consumer groups

<!-- Generated from services/coordinator/table.py by `make generate`; do not edit. -->

A group is a state machine without IO (`services/coordinator/`). Each operation returns values to persist, responses and
timers, and the values are stored first. The tables below are generated from the table that the code uses.

The errors in the tables apply if member id, group.instance.id and generation are valid. Otherwise the error is
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION. In a dead group they are not checked.
"""

_BOUND = """
## Time without a coordinator

Groups are divided into 64 shards, and each live coordinator is assigned some of them. While at least one coordinator
reaches the metadata store, every shard is served within the sum of KAFSCALE_LEASE_TTL_SECONDS,
KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS, 5 seconds (20 seconds in total with the defaults) and the time to read its groups.
This time starts when the last coordinator joined or left, and when the last failure of the metadata store ended:

- A coordinator that died or cannot reach the metadata store loses its lease within KAFSCALE_LEASE_TTL_SECONDS. Then
  another one claims its shards.
- A coordinator that is no longer assigned a shard stores queued changes of its groups, for up to
  KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS, and releases it. Then the newly assigned coordinator claims it.
- After a claim or a release with unknown outcome, or while a lease cannot be confirmed, a shard's key may name a
  coordinator that does not serve the shard. That coordinator notices this within a second. If the shard is assigned to
  it, it claims the shard again; otherwise it releases it. Failed attempts are repeated after at most 2 seconds.

Until then, clients get COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR and retry. Groups keep their members and
offsets. Session timeouts start again when the shard is loaded.
"""

_DIFFERENCES = """
## Differences from Apache Kafka

- The generation is persisted before JoinGroup is answered, not only with the assignment. If the group loses its
  coordinator between the two, it continues with that generation.
- A static member that rejoins with other topics causes a rebalance. In Kafka, only a change of the selected protocol
  does. A static member can rejoin a group that has reached its maximum size.
- An offset that is committed in a group that has been empty for a long time is kept for the full retention.
- A rebalance timeout of 0 means the session timeout.
- If a member sends JoinGroup or SyncGroup again while its first request waits, the first request gets
  REBALANCE_IN_PROGRESS.
- If a client gets a member id (MEMBER_ID_REQUIRED) and leaves or expires without joining, there is no rebalance.
- A group has at most 10,000 members (KAFSCALE_GROUP_MAX_SIZE) with 1.2 MB of member ids, because its header, one value
  in the metadata store, lists all ids. Further members are refused with GROUP_MAX_SIZE_REACHED. If the same number of
  clients got ids and have not joined, each new id replaces the oldest one, whose client gets UNKNOWN_MEMBER_ID.
- A member can send at most 100 protocols and 1 MB of metadata. Its client id, group.instance.id and protocol names can
  each have 32,767 bytes. If it exceeds a limit, the error is INVALID_REQUEST.
- A commit of more than 4,095 offsets or 1.3 MB takes several transactions in the metadata store. If the coordinator
  dies between them, only some offsets are committed, and the commit is not answered.
- Offsets of a deleted topic are no longer returned, even if a new topic has its name. They are deleted at the next
  check for expired offsets (KAFSCALE_GROUP_OFFSETS_RETENTION_CHECK_INTERVAL_MS); in Kafka immediately.
- A gateway that has not noticed yet that a topic was deleted and created again commits offsets for the old topic. The
  coordinator looks topics up in the metadata store. Once KAFSCALE_GROUP_TOPIC_CHECK_MS (10 seconds) have passed since
  the deletion, it refuses such a commit with UNKNOWN_TOPIC_OR_PARTITION. It refuses it immediately if it would replace
  an offset of the new topic. A commit that is accepted earlier is discarded with the old topic. Commits of a group take
  effect in the order in which they reach the coordinator, regardless of how long a lookup takes.
- The retention of offsets (KAFSCALE_GROUP_OFFSETS_RETENTION_MINUTES) is measured with a clock that the coordinators
  share in the metadata store, so a coordinator whose wall clock is days off does not expire offsets too early. Time
  without a running coordinator does not count. The first coordinator that needs the clock sets it once from its wall
  clock; later changes of a wall clock have no effect on it.
- If several protocols have the same number of votes, the first one among the members' votes is selected. In Kafka, any
  of them can be selected.
"""


def document() -> str:
    """Return the complete document."""
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
    text = "\n## Responses\n\n" + _table(("Request", *columns), rows)
    return text + "\n" + _table(("Response", "Meaning"), acts)


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
    return "\n## State transitions\n\n" + _table(("Cause", *(state.value for state in EXITS)), rows)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, ("---",) * len(heads), *rows))
