"""What a deliberately broken product is.

A variant changes lines of the product's functions while it is applied, as tests/mutations do in a copy of the tree; its
``boost`` makes the faults more frequent that bring the defect out.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

from tests.sim.world import TROUBLED_SECONDS, Result, simulate


@dataclass(frozen=True, slots=True)
class Change:
    """``old``, which is there once, becomes ``new`` in a function, given by module and qualified name."""

    module: str
    function: str
    old: str
    new: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        module = importlib.import_module(self.module)
        assert module.__file__ is not None
        source = Path(module.__file__).read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.module}: {source.count(self.old)} times {self.old!r}")
        changed: dict[str, Any] = {"__name__": self.module}
        exec(compile(source.replace(self.old, self.new), module.__file__, "exec"), changed)
        first, *rest = self.function.split(".")
        there, here = changed[first], getattr(module, first)
        for name in rest:
            there, here = getattr(there, name), getattr(here, name)
        if isinstance(here, property):
            there, here = there.fget, here.fget
        assert isinstance(here, FunctionType)
        # The code, not the name: whoever has imported the function gets the change too.
        kept, here.__code__ = here.__code__, there.__code__
        try:
            yield
        finally:
            here.__code__ = kept


@dataclass(frozen=True, slots=True)
class Variant:
    """``boost`` multiplies the chances of faults.

    ``first_seed``: one that showed it once, at which to begin to look for it.
    ``rare``: the test that always shows what so few seeds do that only long runs look for them.
    """

    why: str
    changes: tuple[Change, ...]
    boost: Mapping[str, float] = field(default_factory=dict)
    troubled_seconds: float = TROUBLED_SECONDS
    first_seed: int = 0
    rare: str = ""
    # Whether consumer groups are simulated.
    groups: bool = False
    # Whether storage and the clients of logs are.
    logs: bool = True

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change.applied())
            yield

    def simulate(self, seed: int, *, keep_trace: bool = False) -> Result:
        """The product as it is now, broken or not, under the faults that are to give the variant away."""
        return simulate(
            seed,
            self.boost,
            troubled_seconds=self.troubled_seconds,
            groups=self.groups,
            logs=self.logs,
            keep_trace=keep_trace,
        )
