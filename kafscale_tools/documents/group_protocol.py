"""Generates docs/reference/groups.md from the tables of the group protocol."""

from collections.abc import Mapping, Sequence

from kafscale.v1.coordinator_pb2 import GroupError as E
from services.coordinator.table import ANSWERS, EXITS, NO_GROUP, STATES, Act, Answer, Ask, Cause, State

_HEAD = """\
# Consumer groups

<!-- Generated from services/coordinator/table.py by `make generate`; do not edit. -->

A group is a state machine without IO (`services/coordinator/`). Each operation returns values to persist, replies and
timers. The values are stored before the replies are sent. The tables below are the ones that the state machine uses.

The errors in the tables apply if member id, group.instance.id and generation are valid. Otherwise the error is
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION. A dead group does not check them.
"""

_BOUND = """
## How long a group may be without a coordinator

Groups are divided into 64 shards, which are assigned to the live coordinators. While at least one coordinator can reach
the metadata store, every shard is served within the sum of KAFSCALE_LEASE_TTL_SECONDS,
KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS, 5 seconds, and the time to read the shard's groups. With the defaults, this is 20
seconds and the time to read. It starts when the last coordinator joined or left and the metadata store last recovered.

- A coordinator that died, or that cannot reach the metadata store, loses its lease within KAFSCALE_LEASE_TTL_SECONDS.
  Other coordinators then claim its shards.
- When a shard is assigned to another coordinator, its owner stores the pending writes of its groups, for up to
  KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS, and releases the shard. The other coordinator then claims it.
- If the outcome of a claim or release is unknown, or a lease cannot be proven for a time, a shard's key may name a
  coordinator that does not serve the shard. That coordinator notices this within a second. It claims the shard again if
  the shard is assigned to it, and releases it otherwise. Failed attempts are retried after at most 2 seconds.

Until then clients get COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR and retry. Groups keep their members and offsets.
Session timeouts start again when the shard has been loaded.
"""

_DIFFERENCES = """
## Differences from Apache Kafka

- The generation is persisted before JoinGroup is answered; Kafka persists it only with the assignment. A group that
  loses its coordinator in between continues with that generation.
- A static member that returns with other topics than before causes a rebalance. In Kafka only a change of the chosen
  protocol does. A returning static member keeps its place even if the group has its maximum size.
- An offset that is committed in a group that has long been empty is kept for the full retention.
- A rebalance timeout of 0 means the session timeout.
- If a member sends JoinGroup or SyncGroup again while its first request waits, the first one gets
  REBALANCE_IN_PROGRESS.
- A member id that was assigned with MEMBER_ID_REQUIRED and then leaves or expires before it joins causes no rebalance.
- A group has at most 10,000 members (KAFSCALE_GROUP_MAX_SIZE) and 1.2 MB of member ids, because its header, which is
  one value of the metadata store, names all of them. Further members are refused with GROUP_MAX_SIZE_REACHED. The same
  limits apply to member ids that were assigned and not used to join yet. Beyond them, each new id replaces the oldest
  one, whose client gets UNKNOWN_MEMBER_ID.
- A member has at most 100 protocols and 1 MB of data. Its client id, group.instance.id and each name have at most
  32,767 bytes. Larger requests get INVALID_REQUEST.
- A commit of more than 4,095 offsets, or of more than 1.3 MB, takes several metadata store transactions. If the
  coordinator dies between them, only a part of the offsets is committed, and the commit is not answered.
- Offsets of a deleted topic are no longer returned, not even for a new topic of the same name. They are removed at the
  next check for expired offsets (KAFSCALE_GROUP_OFFSETS_RETENTION_CHECK_INTERVAL_MS); Kafka removes them at once.
- A gateway that has not noticed yet that a topic was deleted and created again sends commits for the old topic. The
  coordinator checks topics in the metadata store. It refuses such commits with UNKNOWN_TOPIC_OR_PARTITION once
  KAFSCALE_GROUP_TOPIC_CHECK_MS (10 seconds) have passed since the deletion, and at once if they would replace an offset
  of the new topic. Offsets that were committed before that are removed with those of the old topic. Commits of one
  group take effect in the order in which they reach the coordinator, even if a check takes long.
- The retention of offsets (KAFSCALE_GROUP_OFFSETS_RETENTION_MINUTES) uses a clock that coordinators share and keep in
  the metadata store, so a coordinator whose wall clock is days off does not expire offsets too early. Time in which no
  coordinator runs does not count. The wall clock of the first coordinator sets this clock once; later changes of a wall
  clock have no effect on it.
- If several protocols have the most votes, the one that was voted for first is chosen. Kafka chooses any of them.
"""


def document() -> str:
    """Return the whole document."""
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
    text = "\n## Answers in each state\n\n" + _table(("Request", *columns), rows)
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
    return "\n## State transitions\n\n" + _table(("Cause", *(state.value for state in EXITS)), rows)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, ("---",) * len(heads), *rows))
