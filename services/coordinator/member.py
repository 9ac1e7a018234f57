"""A member of a group."""

from collections.abc import Iterable
from dataclasses import dataclass

from kafscale.v1.coordinator_pb2 import GroupProtocol, JoinGroupRequest
from kafscale.v1.groups_pb2 import GroupMember

_FORMAT = 1

Protocols = tuple[tuple[str, bytes], ...]
"""Pairs of name and metadata, the preferred protocol first."""


def protocols_of(messages: Iterable[GroupProtocol]) -> Protocols:
    """Convert protocols, keeping only the first one of each name."""
    found: dict[str, bytes] = {}
    for protocol in messages:
        found.setdefault(protocol.name, protocol.metadata)
    return tuple(found.items())


@dataclass(slots=True)
class Member:
    """One member. ``version`` is that of its persisted value; empty if that is missing or out of date."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    version: str = ""
    is_new: bool = False  # its first JoinGroup has not been answered yet

    @classmethod
    def joining(cls, member_id: str, request: JoinGroupRequest) -> "Member":
        member = cls(
            member_id,
            request.instance_id if request.HasField("instance_id") else None,
            request.client_id,
            request.client_host,
            0,
            0,
            (),
            is_new=True,
        )
        member.update(request)
        return member

    def update(self, request: JoinGroupRequest) -> bool:
        """Update the member from a JoinGroup. Returns whether anything changed."""
        timeout = request.rebalance_timeout_ms
        # A timeout of 0 would remove every member before it can answer.
        rebalance_timeout = timeout if timeout > 0 else request.session_timeout_ms
        new = (request.session_timeout_ms, rebalance_timeout, protocols_of(request.protocols))
        if new == (self.session_timeout_ms, self.rebalance_timeout_ms, self.protocols):
            return False
        self.session_timeout_ms, self.rebalance_timeout_ms, self.protocols = new
        return True

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for a protocol, empty if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the member's most preferred protocol among ``candidates``."""
        return next(name for name, _ in self.protocols if name in candidates)

    def value(self) -> GroupMember:
        """Return the persisted form, which does not contain the assignment."""
        return GroupMember(
            format=_FORMAT,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=[GroupProtocol(name=name, metadata=metadata) for name, metadata in self.protocols],
        )

    @classmethod
    def loaded(cls, member_id: str, version: str, value: GroupMember, assignment: bytes) -> "Member":
        return cls(
            member_id,
            value.instance_id if value.HasField("instance_id") else None,
            value.client_id,
            value.client_host,
            value.session_timeout_ms,
            value.rebalance_timeout_ms,
            protocols_of(value.protocols),
            assignment,
            version,
        )
