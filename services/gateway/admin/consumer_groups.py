"""Lists consumer groups, describes them with their lag, and deletes them.

All functions raise RefusedPart, and the metadata store's Unavailable and Refused.
"""

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from kafscale.v1 import admin_pb2 as pb
from kafscale.v1 import coordinator_pb2 as coordinator_pb
from services.gateway.admin.assignment import assigned_partitions
from services.gateway.admin.logs import UNKNOWN, ends_of, key_of
from services.gateway.admin.topics import API
from services.gateway.api import Environment
from services.gateway.coordinators.errors import NO_COORDINATOR, group_code
from services.gateway.coordinators.links import IN_PROCESS
from services.gateway.coordinators.requests import delete_groups, describe_groups, fetch_offsets
from services.gateway.owners.errors import RefusedPart
from services.gateway.topics.deleted import deleted_topics

_CONSUMER = "consumer"
_NO_COORDINATOR_TEXT = "No coordinator answered for the group. Try again."


async def list_groups(environment: Environment, request: pb.ListConsumerGroupsRequest) -> pb.ListConsumerGroupsReply:
    asked = coordinator_pb.ListGroupsRequest(states=request.states)
    found = await environment.coordinators.list_groups(asked)
    if found is None:
        raise RefusedPart(NO_COORDINATOR, "Some group shards have no coordinator that answers. Try again.")
    groups = [_status(environment, each) for each in sorted(found, key=lambda each: each.group)]
    return pb.ListConsumerGroupsReply(groups=groups)


async def described(environment: Environment, group: str) -> coordinator_pb.DescribedGroup:
    """Return the group as its coordinator describes it. Raises RefusedPart for all errors, even GROUP_ID_NOT_FOUND."""
    (question,) = await describe_groups(environment.coordinators, [group])
    if question.result is None:
        raise RefusedPart(NO_COORDINATOR, _NO_COORDINATOR_TEXT)
    _check(question.result.error, group)
    return question.result


async def committed(environment: Environment, group: str) -> Sequence[coordinator_pb.FetchedOffset]:
    """Return the group's committed offsets, without those of deleted topics."""
    query = coordinator_pb.GroupOffsetsQuery(group=group, all=True)
    (question,) = await fetch_offsets(environment.coordinators, [query])
    if question.result is None:
        raise RefusedPart(NO_COORDINATOR, _NO_COORDINATOR_TEXT)
    _check(question.result.error, group)
    gone = await deleted_topics(environment, API, [question.result])
    return [offset for offset in question.result.offsets if offset.topic_id not in gone and offset.offset >= 0]


async def describe_group(
    environment: Environment, request: pb.DescribeConsumerGroupRequest
) -> pb.DescribeConsumerGroupReply:
    group = await described(environment, request.group)
    offsets = await committed(environment, request.group)
    reply = pb.DescribeConsumerGroupReply(group=_status(environment, group), protocol=group.protocol)
    readers: dict[tuple[str, int], str] = {}
    for member in sorted(group.members, key=lambda each: (each.client_id, each.member_id)):
        entry = reply.members.add(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
        )
        assigned = assigned_partitions(member.assignment) if group.protocol_type == _CONSUMER else {}
        for topic, partitions in assigned.items():
            entry.assigned.add(topic=topic, partitions=partitions)
            readers.update(((topic, partition), member.member_id) for partition in partitions)
    await _add_offsets(environment, reply, offsets, readers)
    return reply


async def _add_offsets(
    environment: Environment,
    reply: pb.DescribeConsumerGroupReply,
    offsets: Sequence[coordinator_pb.FetchedOffset],
    readers: dict[tuple[str, int], str],
) -> None:
    by_place = {(offset.topic, offset.partition): offset for offset in offsets}
    refs = {}
    for topic, partition in by_place.keys() | readers.keys():
        known = environment.topics.by_name(topic)
        if known is not None and 0 <= partition < len(known.partitions):
            refs[topic, partition] = known.partitions[partition]
    # Members choose their assignments, so these may contain partitions that do not exist.
    places = sorted(by_place.keys() | refs.keys())
    ends = await ends_of(environment, refs.values())
    for place in places:
        offset, ref = by_place.get(place), refs.get(place)
        end = UNKNOWN if ref is None else ends[key_of(ref)].high_watermark
        entry = reply.offsets.add(
            topic=place[0],
            partition=place[1],
            committed=UNKNOWN if offset is None else offset.offset,
            high_watermark=end,
            lag=UNKNOWN,
            member_id=readers.get(place, ""),
            metadata="" if offset is None else offset.metadata,
        )
        if offset is not None and end != UNKNOWN:
            entry.lag = max(end - offset.offset, 0)


async def delete_group(environment: Environment, request: pb.DeleteConsumerGroupRequest) -> pb.DeleteConsumerGroupReply:
    (question,) = await delete_groups(environment.coordinators, [request.group])
    if question.result is None:
        raise RefusedPart(NO_COORDINATOR, _NO_COORDINATOR_TEXT)
    _check(question.result.error, request.group)
    return pb.DeleteConsumerGroupReply()


def _status(
    environment: Environment, group: coordinator_pb.ListedGroup | coordinator_pb.DescribedGroup
) -> pb.ConsumerGroupStatus:
    link = environment.coordinators.link(group.group)
    address = "" if link is None or link.address == IN_PROCESS else link.address
    return pb.ConsumerGroupStatus(
        group=group.group, state=group.state, protocol_type=group.protocol_type, coordinator=address
    )


def _check(error: "coordinator_pb.GroupError.Code", group: str) -> None:
    if error == coordinator_pb.GroupError.NONE:
        return
    code = group_code(error)
    if code is ErrorCode.group_id_not_found:
        raise RefusedPart(code, f"The group {group} does not exist.")
    if code is ErrorCode.non_empty_group:
        raise RefusedPart(code, f"The group {group} has members; stop them first.")
    raise RefusedPart(code, f"The group's coordinator responded with {code.name}.")
