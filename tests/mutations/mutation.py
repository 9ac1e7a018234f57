"""What one mutation is."""

from dataclasses import dataclass

from tests.support.change import Change


@dataclass(frozen=True, slots=True)
class Mutation:
    """With ``change`` applied ``test`` must fail.

    ``why``: what the wrong code does, or the rule that it breaks. ``test``: pytest's id of a test function, without
    parameters.
    """

    why: str
    change: Change
    test: str
