"""Checks of the promises to consumer groups, based on the answers to members and readers.

- An acked commit is never undone: later requests return it or a later commit.
- A generation of a group has one leader and one set of members, and each slot (a partition to assign) has one member.
- A static member is replaced only by a JoinGroup that was sent after its own.

A member is identified by its id, a static member by its name, because it may return with another id in the same
generation.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from tests.sim.view import Partition
from tests.support.checker import Violation

K = TypeVar("K")
_Generation = tuple[str, int]


class GroupChecker:
    """The checker of groups. It shares ``violations`` with the checker of logs."""

    def __init__(self, violations: list[Violation]) -> None:
        self._violations = violations
        self._leaders: dict[_Generation, str] = {}
        self._members: dict[_Generation, list[str]] = {}
        self._holders: dict[tuple[str, int, int], str] = {}
        self._acked: dict[tuple[str, Partition], int] = {}
        self.commits = self.fetches = self.assignments = 0

    def joined(self, group: str, generation: int, leader: str, members: Iterable[str]) -> None:
        """Report the leader that a member received, and the members that the leader received."""
        key = group, generation
        self._same(self._leaders, key, leader, "leaders")
        if reported := sorted(members):
            self._same(self._members, key, reported, "sets of members")

    def assigned(self, group: str, generation: int, slots: Iterable[int], member: str) -> None:
        self.assignments += 1
        for slot in slots:
            holder = self._holders.setdefault((group, generation, slot), member)
            if holder != member:
                self.complain(group, f"slot {slot} of generation {generation} is assigned to {holder} and {member}")

    def acked(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Report acked offsets. From now on, lower offsets must not be returned."""
        self.commits += 1
        for partition, offset in offsets.items():
            self._acked[group, partition] = max(offset, self.floor(group, partition))

    def floor(self, group: str, partition: Partition) -> int:
        """Return the lowest offset that may be returned from now on, or -1 without an acked commit."""
        return self._acked.get((group, partition), -1)

    def fetched(self, group: str, partition: Partition, offset: int, *, floor: int) -> None:
        """Report a fetched offset. ``floor`` is the floor at the time of the request."""
        self.fetches += 1
        if offset < floor:
            self.complain(group, f"the committed offset of {partition.log} went back from {floor} to {offset}")
        # A returned offset counts, acked or not.
        self._acked[group, partition] = max(offset, self.floor(group, partition))

    def complain(self, group: str, detail: str) -> None:
        self._violations.append(Violation("group", group, detail))

    def _same(self, known_values: dict[_Generation, K], key: _Generation, value: K, what: str) -> None:
        known = known_values.setdefault(key, value)
        if known != value:
            self.complain(key[0], f"generation {key[1]} has two {what}: {known} and {value}")
