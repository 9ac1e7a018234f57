"""A mutation and the test that must notice it."""

from dataclasses import dataclass

from tests.support.change import Change


@dataclass(frozen=True, slots=True)
class Mutation:
    """If ``change`` is applied, ``test`` must fail.

    ``why``: the defect, or the rule that it breaks. ``test``: pytest's id of a test function, without
    parameters. ``slow``: the test takes long to fail, so that only `make test-long` applies this mutation.
    """

    why: str
    change: Change
    test: str
    slow: bool = False
