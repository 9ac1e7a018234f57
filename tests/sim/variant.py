"""A deliberately broken product.

A variant changes lines of the product's functions while it is applied, like the mutations. Its ``boost`` raises the
frequency of the faults that expose the defect.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.sim.result import Result
from tests.sim.world import TROUBLED_SECONDS, simulate
from tests.support.change import Change


@dataclass(frozen=True, slots=True)
class Variant:
    """A broken product. ``boost`` multiplies the probabilities of faults.

    ``first_seed`` is the first seed to try, which has detected the defect before. ``rare`` is the test that always
    detects a defect that few seeds detect, so only long runs simulate it.
    """

    why: str
    changes: tuple[Change, ...]
    boost: Mapping[str, float] = field(default_factory=dict)
    troubled_seconds: float = TROUBLED_SECONDS
    first_seed: int = 0
    rare: str = ""
    # Whether to simulate consumer groups.
    groups: bool = False
    # Whether to simulate storage and the clients of logs.
    logs: bool = True
    # Whether storage instances have intakes.
    intake: bool = False
    # Whether logs are merged and compacted.
    rewrites: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change.applied())
            yield

    def simulate(self, seed: int, *, keep_trace: bool = False, until_violation: bool = False) -> Result:
        """Simulate the current product, changed or not, with the faults that expose the variant."""
        return simulate(
            seed,
            self.boost,
            troubled_seconds=self.troubled_seconds,
            groups=self.groups,
            logs=self.logs,
            intake=self.intake,
            rewrites=self.rewrites,
            keep_trace=keep_trace,
            until_violation=until_violation,
        )
