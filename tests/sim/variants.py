"""The product, deliberately broken in one way each: what the simulation must find."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Variant:
    """``boost`` multiplies the chances of the faults that bring the defect out."""

    why: str
    applied: Callable[[], AbstractContextManager[object]]
    boost: Mapping[str, float] = field(default_factory=dict)


VARIANTS: dict[str, Variant] = {}
