"""Queries about groups that several APIs send to coordinators: one call to each coordinator, all at the same time.

A question without a result means that no coordinator is known or none answered in time. The client must get a retriable
error.
"""

from collections.abc import Sequence

from kafscale.errors import Unavailable
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.coordinators.links import CoordinatorLink, Coordinators, Question


async def describe_groups(coordinators: Coordinators, names: Sequence[str]) -> list[Question[str, pb.DescribedGroup]]:
    """Return a question for each name, in order."""

    async def ask(link: CoordinatorLink, groups: list[str], timeout: float) -> Sequence[pb.DescribedGroup]:
        return (await link.client.describe_groups(pb.DescribeGroupsRequest(groups=groups), timeout=timeout)).groups

    questions: list[Question[str, pb.DescribedGroup]] = [Question(name, [name]) for name in names]
    await coordinators.ask_all(questions, ask)
    return questions


async def delete_groups(coordinators: Coordinators, names: Sequence[str]) -> list[Question[str, pb.DeletedGroup]]:
    """Return a question for each name, in order. Groups with members are refused."""

    async def ask(link: CoordinatorLink, groups: list[str], timeout: float) -> Sequence[pb.DeletedGroup]:
        return (await link.client.delete_groups(pb.DeleteGroupsRequest(groups=groups), timeout=timeout)).groups

    questions: list[Question[str, pb.DeletedGroup]] = [Question(name, [name]) for name in names]
    await coordinators.ask_all(questions, ask)
    return questions


async def fetch_offsets(
    coordinators: Coordinators, queries: Sequence[pb.GroupOffsetsQuery], *, stable: bool = False
) -> list[Question[pb.GroupOffsetsQuery, pb.GroupOffsets]]:
    """Return a question for each query, in order. The results may contain offsets of deleted topics."""

    async def ask(
        link: CoordinatorLink, asked: list[pb.GroupOffsetsQuery], timeout: float
    ) -> Sequence[pb.GroupOffsets]:
        fetch = pb.OffsetFetchRequest(groups=asked, require_stable=stable)
        groups = (await link.client.offset_fetch(fetch, timeout=timeout)).groups
        for query, group in zip(asked, groups, strict=False):
            if not query.all and not group.error and len(group.offsets) != len(query.partitions):
                raise Unavailable("a coordinator returned the wrong number of offsets")
        return groups

    questions: list[Question[pb.GroupOffsetsQuery, pb.GroupOffsets]] = [
        Question(each.group, [each]) for each in queries
    ]
    await coordinators.ask_all(questions, ask)
    return questions
