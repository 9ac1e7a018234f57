"""The checker of consumer groups complains of broken promises and of nothing else."""

import pytest

from tests.sim.group_checker import GroupChecker
from tests.sim.view import Partition
from tests.support.checker import Violation


@pytest.fixture
def violations() -> list[Violation]:
    return []


@pytest.fixture
def checker(violations: list[Violation]) -> GroupChecker:
    return GroupChecker(violations)


@pytest.fixture
def partition() -> Partition:
    return Partition("t", bytes(16), 0)


def test_an_offset_that_was_acked_or_fetched_may_not_go_back(
    checker: GroupChecker, violations: list[Violation], partition: Partition
) -> None:
    checker.acked("g", {partition: 5})
    checker.acked("g", {partition: 3})
    assert checker.floor("g", partition) == 5
    checker.fetched("g", partition, 7, floor=5)
    checker.fetched("g", partition, 7, floor=checker.floor("g", partition))
    assert violations == []
    checker.fetched("g", partition, 6, floor=checker.floor("g", partition))
    assert [violation.log for violation in violations] == ["g"]


def test_a_commit_acked_after_a_request_may_be_missing_in_its_answer(
    checker: GroupChecker, violations: list[Violation], partition: Partition
) -> None:
    floor = checker.floor("g", partition)
    checker.acked("g", {partition: 5})
    checker.fetched("g", partition, -1, floor=floor)
    assert violations == []
    assert checker.floor("other", partition) == -1


def test_a_generation_has_one_leader_and_one_set_of_members(checker: GroupChecker, violations: list[Violation]) -> None:
    checker.joined("g", 1, "a", ["b", "a"])
    checker.joined("g", 1, "a", [])
    checker.joined("g", 1, "a", ["a", "b"])
    checker.joined("g", 2, "b", ["b"])
    checker.joined("other", 1, "b", ["b"])
    assert violations == []
    checker.joined("g", 1, "b", [])
    checker.joined("g", 2, "b", ["a", "b"])
    assert len(violations) == 2


def test_a_partition_has_one_member_in_a_generation(checker: GroupChecker, violations: list[Violation]) -> None:
    checker.assigned("g", 1, [0, 1], "a")
    checker.assigned("g", 1, [0, 1], "a")
    checker.assigned("g", 1, [2], "b")
    checker.assigned("g", 2, [0, 1, 2], "b")
    assert violations == []
    checker.assigned("g", 1, [1, 3], "b")
    assert len(violations) == 1
