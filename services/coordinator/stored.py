"""The persisted form of a group: writing it as records, and reading it back."""

from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import DecodeError

from kafscale.errors import CorruptData
from kafscale.paths import GroupKeys
from kafscale.v1 import groups_pb2 as values
from services.coordinator.effects import Record
from services.coordinator.group import Group, Offset
from services.coordinator.member import Member
from services.coordinator.table import State
from services.coordinator.turn import Turn

CHUNK_BYTES = 512 * 1024
"""The maximum size of a chunk of assignments. Two chunks fit into one etcd request."""
_FORMAT = 1
_M = TypeVar("_M", values.Group, values.GroupMember, values.GroupAssignmentsChunk, values.GroupOffset)


def write_header(turn: Turn) -> None:
    """Persist the group's current state: first new member values, then the header that refers to them."""
    group, effects = turn.group, turn.effects
    for member in group.members.values():
        if not member.version:
            member.version = group.version
            effects.stage.append(Record(group.keys.member(member.member_id, member.version), member.value()))
    header = values.Group(
        format=_FORMAT,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=[values.Group.MemberRef(member_id=m.member_id, version=m.version) for m in group.members.values()],
        assignments_version=group.assignments_version,
        assignments_chunks=group.assignments_chunks,
        changed_ms=group.changed_ms,
    )
    effects.commit.append(Record(group.keys.header, header))
    effects.sweep += group.unused
    group.unused.clear()
    group.has_header = True


def stage_assignments(turn: Turn) -> None:
    """Write the members' assignments. They become current with the next header."""
    group = turn.group
    data = values.GroupAssignments(assignments=[m.assignment for m in group.members.values()]).SerializeToString()
    parts = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    group.assignments_version, group.assignments_chunks = group.version, len(parts)
    for chunk, part in enumerate(parts):
        key = group.keys.assignments(group.version, chunk)
        turn.effects.stage.append(Record(key, values.GroupAssignmentsChunk(format=_FORMAT, part=part)))


def discard_assignments(group: Group) -> None:
    """Remove the assignments, because a generation begins without any."""
    version, chunks = group.assignments_version, group.assignments_chunks
    group.unused += [group.keys.assignments(version, chunk) for chunk in range(chunks)]
    group.assignments_version, group.assignments_chunks = "", 0


def delete_stored(turn: Turn) -> None:
    """Delete everything stored for a group. Offsets go first, so that none remains without a header."""
    group, effects = turn.group, turn.effects
    effects.stage += [Record(group.keys.offset(*partition), None) for partition in group.offsets]
    group.offsets.clear()
    if group.has_header:
        effects.commit.append(Record(group.keys.header, None))
    discard_assignments(group)
    effects.sweep += group.unused
    group.unused.clear()


def offset_record(keys: GroupKeys, partition: tuple[str, int], offset: Offset) -> Record:
    value = values.GroupOffset(
        format=_FORMAT,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        committed_ms=offset.committed_ms,
        expires_ms=offset.expires_ms,
        topic_id=offset.topic_id,
    )
    return Record(keys.offset(*partition), value)


def read_group(keys: GroupKeys, items: Iterable[tuple[str, bytes]], revision: int) -> tuple[Group | None, list[str]]:
    """Read a group from all keys below its prefix, read at ``revision``. Returns it and the keys nothing refers to.

    The group is None if there is no header. Raises CorruptData if anything that the header refers to is missing or
    damaged.
    """
    stored = dict(items)
    raw_header = stored.pop(keys.header, None)
    if raw_header is None:
        return None, list(stored)
    header = _read(values.Group, raw_header, keys.header)
    group = Group(keys, revision, has_header=True)
    group.generation, group.changed_ms = header.generation, header.changed_ms
    group.leader = header.leader
    group.assignments_version, group.assignments_chunks = header.assignments_version, header.assignments_chunks
    for ref, assignment in zip(header.members, _take_assignments(header, keys, stored), strict=True):
        key = keys.member(ref.member_id, ref.version)
        value = _read(values.GroupMember, _take(stored, key), key)
        group.add(Member.loaded(ref.member_id, ref.version, value, assignment), header.protocol_type)
    group.protocol_type, group.protocol = header.protocol_type, header.protocol
    if group.members:
        group.state = State.STABLE if header.assignments_version else State.COMPLETING
    if group.protocol_type:
        group.topics = group.known_topics()
    for key, data in list(stored.items()):
        partition = keys.parse_offset(key)
        if partition is not None:
            group.offsets[partition] = _read_offset(key, data)
            del stored[key]
    return group, list(stored)


def _read_offset(key: str, data: bytes) -> Offset:
    value = _read(values.GroupOffset, data, key)
    expires = value.expires_ms if value.HasField("expires_ms") else None
    return Offset(value.offset, value.leader_epoch, value.metadata, value.committed_ms, expires, value.topic_id)


def _take_assignments(header: values.Group, keys: GroupKeys, stored: dict[str, bytes]) -> list[bytes]:
    if not header.assignments_version:
        return [b""] * len(header.members)
    parts = []
    for chunk in range(header.assignments_chunks):
        key = keys.assignments(header.assignments_version, chunk)
        parts.append(_read(values.GroupAssignmentsChunk, _take(stored, key), key).part)
    try:
        found = list(values.GroupAssignments.FromString(b"".join(parts)).assignments)
    except DecodeError as error:
        raise CorruptData(f"{keys.header}: the assignments cannot be decoded") from error
    if len(found) != len(header.members):
        raise CorruptData(f"{keys.header}: {len(found)} assignments for {len(header.members)} members")
    return found


def _take(stored: dict[str, bytes], key: str) -> bytes:
    try:
        return stored.pop(key)
    except KeyError:
        raise CorruptData(f"{key} is missing, but the group's header refers to it") from None


def _read(kind: type[_M], data: bytes, key: str) -> _M:
    try:
        value = kind.FromString(data)
    except DecodeError as error:
        raise CorruptData(f"{key}: {error}") from error
    if value.format != _FORMAT:
        raise CorruptData(f"{key} has format {value.format}, this release reads {_FORMAT}")
    return value
