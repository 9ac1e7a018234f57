"""What a deliberately broken product is.

A variant changes lines of the product's functions while it is applied, as the mutations do; its ``boost`` makes the
faults more frequent that bring the defect out.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.sim.world import TROUBLED_SECONDS, Result, simulate
from tests.support.change import Change


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
