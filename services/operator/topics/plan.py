"""Computes the actions that bring a topic to its desired state. This module does no IO.

A resource manages the configs that it names, which are set, and those that it named before (``managed``), which are
unset. Other configs of the topic are kept, so that adopting a topic cannot shorten its retention.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafscale.topics.configs import InvalidConfig, validate
from services.operator.conditions import Complaint
from services.operator.topics.desired import Desired

CANNOT_SHRINK = "PartitionsCannotShrink"
INVALID_CONFIG = "InvalidConfig"


@dataclass(frozen=True, slots=True)
class Seen:
    """A topic as a gateway reports it. ``configs`` are those that the topic overrides."""

    id: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Create:
    """Create a topic. ``partitions`` 0 means the gateway's default."""

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
class Plan:
    """Ordered actions, each safe to repeat. ``managed`` are the names of configs to record before any action."""

    actions: tuple[Action, ...]
    managed: tuple[str, ...]
    complaint: Complaint | None = None


def plan(desired: Desired, seen: Seen | None, managed: Collection[str]) -> Plan:
    """Return the plan for a topic. ``seen`` is None if the topic does not exist."""
    try:
        configs = validate(desired.configs)
    except InvalidConfig as error:
        return Plan((), tuple(sorted(managed)), Complaint(INVALID_CONFIG, str(error)))
    noted = tuple(sorted({*managed, *configs}))
    if seen is None:
        return Plan((Create(desired.partitions or 0, configs),), noted)
    actions: list[Action] = []
    complaint = None
    if desired.partitions is not None and desired.partitions > seen.partitions:
        actions.append(Grow(seen.partitions, desired.partitions))
    elif desired.partitions is not None and desired.partitions < seen.partitions:
        complaint = Complaint(
            CANNOT_SHRINK,
            f"the topic has {seen.partitions} partitions, but the resource has {desired.partitions}: partitions cannot "
            "be removed, because their records would be lost",
        )
    change = Configure(
        {name: value for name, value in configs.items() if seen.configs.get(name) != value},
        tuple(sorted(name for name in managed if name not in configs and name in seen.configs)),
    )
    if change.set or change.unset:
        actions.append(change)
    return Plan(tuple(actions), noted, complaint)


def described(action: Action) -> str:
    """Return a description of a completed action."""
    match action:
        case Create(partitions, configs):
            number = _count(partitions) if partitions else "the gateway's default number of partitions"
            return f"created the topic with {number}" + (f" and {_pairs(configs)}" if configs else "")
        case Grow(before, partitions):
            return f"increased the partitions from {before} to {partitions}"
        case Configure(set_, unset):
            parts = ([f"set {_pairs(set_)}"] if set_ else []) + ([f"unset {', '.join(unset)}"] if unset else [])
            return "; ".join(parts)


def _count(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"


def _pairs(configs: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(configs.items()))
