"""What etcd's members say of their databases, and what is done to them one by one."""

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
"""The alarm of a database that has reached its quota: etcd takes no writes until it is disarmed."""

# One that runs longer goes on in etcd; the member's next status says what became of it.
_DEFRAGMENT_SECONDS = 120.0
_ABSENT_KEY = b"\0"  # reading it costs next to nothing
_ALARM = re.compile(r"alarm:\s*([A-Z]+)")


@dataclass(frozen=True, slots=True)
class EtcdStatus:
    """What the member at ``address`` says of itself.

    ``revision``: the newest it has. ``database_bytes``: its file, which the quota is about; it does not shrink.
    ``quota_bytes``: 0 from releases before 3.6, negative where there is none. ``problems``: alarms, of all members,
    and the lack of a leader.
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
        """One for each member that has raised it."""
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
    """Every method raises Unavailable and Refused; only users with etcd's root role may do more than look."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    @property
    def members(self) -> int:
        """How many there are, whether they answer or not."""
        return len(self._client.members)

    async def statuses(self) -> Sequence[EtcdStatus]:
        """Of the members that answer, one at least."""
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
        """Whether history is compacted beyond ``revision``, as far as this user may find out."""
        try:
            await self._client.call(RANGE, pb.RangeRequest(key=_ABSENT_KEY, revision=revision), repeatable=True)
        except Compacted:
            return True
        except (FutureRevision, Refused):
            return False
        return False

    async def defragment(self, address: str) -> None:
        """Shrink the file of one member to what is in use; it answers nobody meanwhile."""
        [member] = (member for member in self._client.members if member.address == address)
        await self._client.ask(member, DEFRAGMENT, pb.DefragmentRequest(), timeout=_DEFRAGMENT_SECONDS)

    async def disarm(self) -> None:
        """Take back every member's alarm NOSPACE, and no other: etcd raises it again where it still holds."""
        alarms = await self._client.call(ALARM, pb.AlarmRequest(action=pb.AlarmRequest.GET), repeatable=True)
        for raised in alarms.alarms:
            if raised.alarm == pb.NOSPACE:
                request = pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, memberID=raised.memberID, alarm=pb.NOSPACE)
                await self._client.call(ALARM, request, repeatable=True)
