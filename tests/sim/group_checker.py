"""What consumer groups are promised, checked from what their members and readers are told.

- A commit that was acked never goes back: whoever asks later is told it or a later one.
- A generation of a group has one leader, one set of members, and each slot (a partition to assign) in one member.
- A static member is replaced only by a JoinGroup that was sent after its own.

A member is identified by its id, a static one by its name: it may come back with another id in the same generation.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from tests.sim.view import Partition
from tests.support.checker import Violation

K = TypeVar("K")
_Generation = tuple[str, int]


class GroupChecker:
    """``violations`` is shared with the checker of logs."""

    def __init__(self, violations: list[Violation]) -> None:
        self._violations = violations
        self._leaders: dict[_Generation, str] = {}
        self._members: dict[_Generation, list[str]] = {}
        self._holders: dict[tuple[str, int, int], str] = {}
        self._acked: dict[tuple[str, Partition], int] = {}
        self.commits = self.fetches = self.assignments = 0

    def joined(self, group: str, generation: int, leader: str, members: Iterable[str]) -> None:
        """A member was told who leads; the leader who the members are."""
        key = group, generation
        self._same(self._leaders, key, leader, "leaders")
        if told := sorted(members):
            self._same(self._members, key, told, "sets of members")

    def assigned(self, group: str, generation: int, slots: Iterable[int], member: str) -> None:
        self.assignments += 1
        for slot in slots:
            holder = self._holders.setdefault((group, generation, slot), member)
            if holder != member:
                self.complain(group, f"slot {slot} of generation {generation} is assigned to {holder} and {member}")

    def acked(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """These are what is committed, or less than that, from now on."""
        self.commits += 1
        for partition, offset in offsets.items():
            self._acked[group, partition] = max(offset, self.floor(group, partition))

    def floor(self, group: str, partition: Partition) -> int:
        """Less than this must not be told any more; -1: nothing is promised."""
        return self._acked.get((group, partition), -1)

    def fetched(self, group: str, partition: Partition, offset: int, *, floor: int) -> None:
        """``floor``: as it was when this was asked."""
        self.fetches += 1
        if offset < floor:
            self.complain(group, f"{floor} was committed for {partition.log}, now {offset} is")
        # What was told counts, acked or not.
        self._acked[group, partition] = max(offset, self.floor(group, partition))

    def complain(self, group: str, detail: str) -> None:
        self._violations.append(Violation("group", group, detail))

    def _same(self, told: dict[_Generation, K], key: _Generation, value: K, what: str) -> None:
        known = told.setdefault(key, value)
        if known != value:
            self.complain(key[0], f"generation {key[1]} has two {what}: {known} and {value}")
