"""Status, defragmentation and alarms of etcd's members."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from kafscale.errors import KafscaleError, Refused, Unavailable
from kafscale.etcdpb import etcd_pb2 as pb
from kafscale.metadata.etcd_client import EtcdClient, Member
from kafscale.metadata.etcd_errors import FutureRevision
from kafscale.metadata.etcd_wire import ALARM, DEFRAGMENT, RANGE, STATUS
from kafscale.metadata.interface import Compacted

NOSPACE = "NOSPACE"
"""The alarm of a database that has reached its quota. etcd accepts no writes until it is disarmed."""

# A defragmentation that takes longer continues in etcd; the member's next status shows the result.
_DEFRAGMENT_SECONDS = 120.0
_ABSENT_KEY = b"\0"  # reading it costs next to nothing
_ALARM = re.compile(r"alarm:\s*([A-Z]+)")


@dataclass(frozen=True, slots=True)
class EtcdStatus:
    """The status that the member at ``address`` reports.

    ``revision`` is its newest. ``database_bytes`` is the size of its file, which the quota limits and which does not
    shrink. ``quota_bytes`` is 0 before etcd 3.6 and negative without a quota. ``problems`` lists the alarms of all
    members, and the lack of a leader.
    """

    address: str
    version: str
    revision: int
    database_bytes: int
    database_bytes_in_use: int
    quota_bytes: int
    has_leader: bool
    problems: tuple[str, ...]

    @property
    def alarms(self) -> tuple[str, ...]:
        """The names of raised alarms, once for each member that has raised one."""
        return tuple(found[1] for problem in self.problems if (found := _ALARM.search(problem)))


def status_of(address: str, reply: pb.StatusResponse) -> EtcdStatus:
    return EtcdStatus(
        address=address,
        version=reply.version,
        revision=reply.header.revision,
        database_bytes=reply.dbSize,
        database_bytes_in_use=reply.dbSizeInUse,
        quota_bytes=reply.dbSizeQuota,
        has_leader=reply.leader != 0,
        problems=tuple(reply.errors),
    )


class EtcdMaintenance:
    """Maintenance calls. All methods raise Unavailable and Refused. Methods that change etcd need its root role."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    @property
    def members(self) -> int:
        """The number of members, whether they answer or not."""
        return len(self._client.members)

    async def statuses(self) -> Sequence[EtcdStatus]:
        """Return the status of each member that answers, at least one."""
        found: list[EtcdStatus] = []
        failures: list[KafscaleError] = []

        async def ask(member: Member) -> None:
            try:
                reply = await self._client.ask(member, STATUS, pb.StatusRequest())
            except (Unavailable, Refused) as error:
                failures.append(error)
            else:
                found.append(status_of(member.address, reply))

        async with trio.open_nursery() as nursery:
            for member in self._client.members:
                nursery.start_soon(ask, member)
        if not found:
            raise failures[0]
        return sorted(found, key=lambda status: status.address)

    async def is_compacted(self, revision: int) -> bool:
        """Return whether history is compacted beyond ``revision``. False if this user may not check."""
        try:
            await self._client.call(RANGE, pb.RangeRequest(key=_ABSENT_KEY, revision=revision), repeatable=True)
        except Compacted:
            return True
        except (FutureRevision, Refused):
            return False
        return False

    async def defragment(self, address: str) -> None:
        """Shrink the file of one member to the part in use. The member answers no requests meanwhile."""
        [member] = (member for member in self._client.members if member.address == address)
        await self._client.ask(member, DEFRAGMENT, pb.DefragmentRequest(), timeout=_DEFRAGMENT_SECONDS)

    async def disarm(self) -> None:
        """Disarm the NOSPACE alarm, and no other, of all members. etcd raises it again if it still applies."""
        alarms = await self._client.call(ALARM, pb.AlarmRequest(action=pb.AlarmRequest.GET), repeatable=True)
        for raised in alarms.alarms:
            if raised.alarm == pb.NOSPACE:
                request = pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, memberID=raised.memberID, alarm=pb.NOSPACE)
                await self._client.call(ALARM, request, repeatable=True)
