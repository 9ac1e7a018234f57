"""What one mutation is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """The file ``path`` with ``new`` for ``old``, its only occurrence, has the pitfalls; ``test`` must fail on it.

    ``test`` is pytest's id of a test function, without parameters; its name bears the numbers of the pitfalls. Code
    that breaks a rule which is no pitfall of the list has no ``pitfalls``; ``rule`` says what it breaks.
    """

    pitfalls: tuple[int, ...]
    path: str
    old: str
    new: str
    test: str
    rule: str = ""
