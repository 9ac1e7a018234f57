"""What has to be done so that a topic is as it is wanted: (wanted, seen) -> actions. Pure.

A resource has a say in the configs that it names, and in those that it named before (``managed``): the first are set,
the others unset. What somebody else gave the topic stays, so that adopting a topic cannot shorten its retention.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafscale.topics.configs import InvalidConfig, validate
from services.operator.topics.wanted import Wanted

CANNOT_SHRINK = "PartitionsCannotShrink"
INVALID_CONFIG = "InvalidConfig"


@dataclass(frozen=True, slots=True)
class Seen:
    """A topic as a gateway tells of it; ``configs`` are those that it sets itself."""

    id: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Create:
    """``partitions`` 0: as many as the gateway gives a new topic."""

    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Grow:
    before: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Configure:
    set: Mapping[str, str]
    unset: tuple[str, ...]


Action = Create | Grow | Configure


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a topic cannot be as it is wanted."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """``actions`` in their order; each may be repeated. ``managed``: names of configs to note before any of them."""

    actions: tuple[Action, ...]
    managed: tuple[str, ...]
    complaint: Complaint | None = None


def plan(wanted: Wanted, seen: Seen | None, managed: Collection[str]) -> Plan:
    """``seen`` None: there is no such topic."""
    try:
        configs = validate(wanted.configs)
    except InvalidConfig as error:
        return Plan((), tuple(sorted(managed)), Complaint(INVALID_CONFIG, str(error)))
    noted = tuple(sorted({*managed, *configs}))
    if seen is None:
        return Plan((Create(wanted.partitions or 0, configs),), noted)
    actions: list[Action] = []
    complaint = None
    if wanted.partitions is not None and wanted.partitions > seen.partitions:
        actions.append(Grow(seen.partitions, wanted.partitions))
    elif wanted.partitions is not None and wanted.partitions < seen.partitions:
        complaint = Complaint(
            CANNOT_SHRINK,
            f"the topic has {seen.partitions} partitions and {wanted.partitions} are wanted: partitions cannot be "
            "taken away, since their records would be lost",
        )
    change = Configure(
        {name: value for name, value in configs.items() if seen.configs.get(name) != value},
        tuple(sorted(name for name in managed if name not in configs and name in seen.configs)),
    )
    if change.set or change.unset:
        actions.append(change)
    return Plan(tuple(actions), noted, complaint)


def in_words(action: Action) -> str:
    """For people, in the past tense."""
    match action:
        case Create(partitions, configs):
            many = f"with {_count(partitions)}" if partitions else "with the gateway's number of partitions"
            return f"made the topic {many}" + (f" and {_pairs(configs)}" if configs else "")
        case Grow(before, partitions):
            return f"gave the topic {_count(partitions)}; it had {before}"
        case Configure(set_, unset):
            parts = ([f"set {_pairs(set_)}"] if set_ else []) + ([f"unset {', '.join(unset)}"] if unset else [])
            return "; ".join(parts)


def _count(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"


def _pairs(configs: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(configs.items()))
