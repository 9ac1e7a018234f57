"""Committed offsets whose topics have been deleted."""

from collections.abc import Sequence

from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.api import Environment


async def deleted_topics(environment: Environment, api: str, groups: Sequence[pb.GroupOffsets]) -> set[bytes]:
    """Return the ids of deleted topics for which the groups have committed offsets.

    Raises Unavailable, Refused.
    """
    committed = {offset.topic_id for group in groups for offset in group.offsets if offset.offset >= 0}
    unknown = {topic_id for topic_id in committed if environment.topics.by_id(topic_id) is None}
    if unknown:
        with environment.logging_refusals(api):
            unknown -= await environment.catalog.live_ids()
    return unknown
