"""docs/groups.md, drawn from the table of the group protocol."""

from collections.abc import Mapping, Sequence

from kafscale.v1.coordinator_pb2 import GroupError as E
from services.coordinator.table import ANSWERS, EXITS, NO_GROUP, STATES, Act, Answer, Ask, Cause, State

_HEAD = """\
# Consumer groups

<!-- Generated from services/coordinator/table.py by `python -m services.cli.docs`; do not edit. -->

A group is a state machine without IO (`services/coordinator/`): each operation gives values to persist, replies and
timers; the values are stored first. The tables below are the ones that it uses.

Errors in them are what is answered when member id, group.instance.id and generation are right. Else it is
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION; in a dead group none of them is looked at.
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
- A commit by a topic's name through a gateway that has not seen yet that the topic was deleted and made anew counts for
  the old one, and is forgotten with it. Gateways see topics as fast as they follow the metadata store.
- Of protocols with equally many votes the one that came up first among the members' votes is chosen; in Kafka any.
"""


def document() -> str:
    """The whole text."""
    return _HEAD + _picture() + _states() + _answers() + _exits() + _DIFFERENCES


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
