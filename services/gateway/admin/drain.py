"""Draining: an instance gives all that it has to the others, and is given nothing more until that is taken back.

What says so stands in the instance's own registration and ends with it. All who look at the members see it by the
watches that they have, the instance too, and do what they do when a process says that it is leaving.
"""

from collections.abc import Awaitable, Callable, Mapping

import grpc
import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import LeaseNotFound, Put, Unchanged
from kafscale.metadata.members import LiveMember, Members, MembersView, live_member
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.groups_pb2 import GroupShard
from kafscale.v1.metadata_pb2 import Member, PartitionState
from services.gateway.api import Environment
from services.gateway.service import GatewayParts

_STATUS = grpc.StatusCode
_ATTEMPTS = 8
_LOOK_SECONDS = 0.25
"""Between two looks at what is left."""
_RELEASED = ""

Send = Callable[[pb.DrainProgress], Awaitable[None]]
Left = Callable[[], Awaitable[int]]


class Drains:
    """``members``: of each service, by its name; all must be running. Methods raise StatusError and Unavailable."""

    def __init__(self, parts: GatewayParts, members: Mapping[str, Members]) -> None:
        self._parts = parts
        self._members = members

    async def drain(self, environment: Environment, request: pb.DrainInstanceRequest, send: Send) -> None:
        """Tell how it goes until others have all that the instance had."""
        live = self._instance(request.instance)
        revision = await self._mark(live, draining=True)
        service = live.member.service
        members = self._members[service]
        while members.view.revision < revision:
            await members.changed()
        left_of = self._partitions(environment, live.run_id) if service == "storage" else self._shards(live.run_id)
        told = pb.DrainProgress(service=service, address=live.address, run_id=live.run_id, remaining=-1)
        while left := await left_of():
            if left != told.remaining:
                told.total, told.remaining = max(told.total, left), left
                await send(told)
            _check(live, members.view)
            await trio.sleep(_LOOK_SECONDS)
        told.remaining, told.done = 0, True
        await send(told)

    async def cancel(self, request: pb.CancelDrainRequest) -> pb.CancelDrainReply:
        live = self._instance(request.instance)
        await self._mark(live, draining=False)
        return pb.CancelDrainReply(service=live.member.service, address=live.address, run_id=live.run_id)

    def _instance(self, name: str) -> LiveMember:
        """By address or run id. An older run at its address, whose lease has not ended yet, has no address."""
        found = [
            live
            for members in self._members.values()
            for live in members.view.present
            if name and name in (live.run_id, live.address)
        ]
        if not found:
            raise StatusError(_STATUS.NOT_FOUND, f"No instance has the address or run id {name!r}.")
        if len(found) > 1:
            services = " and ".join(live.member.service for live in found)
            raise StatusError(_STATUS.INVALID_ARGUMENT, f"At {name} there are {services}: name one by its run id.")
        (live,) = found
        if live.member.service not in ("storage", "coordinator"):
            text = f"The {live.member.service} {name} owns nothing that could be moved: stop it, others do its work."
            raise StatusError(_STATUS.FAILED_PRECONDITION, text)
        return live

    async def _mark(self, live: LiveMember, *, draining: bool) -> int:
        """Write it into the registration, and give the revision from which it stands there."""
        prefix = paths.members_prefix(self._parts.namespace, live.member.service)
        for _ in range(_ATTEMPTS):
            snapshot = await self._parts.metadata.read_prefix(prefix)
            items = {item.key.removeprefix(prefix): item for item in snapshot.items}
            item = items.get(live.run_id)
            if item is None:
                raise _gone(live)
            member = Member.FromString(item.value)
            if draining and member.draining:
                return item.mod_revision
            compares = [Unchanged(item.key, item.mod_revision)]
            if draining:
                placed = MembersView.of(snapshot.revision, map(live_member, snapshot.items)).placed
                # It must stay as it is: else two drains at once would leave nobody.
                stays = items[_another(live, member, placed).run_id]
                compares.append(Unchanged(stays.key, stays.mod_revision))
            elif not member.draining:
                text = f"The {live.member.service} instance {live.address} is not being drained."
                raise StatusError(_STATUS.FAILED_PRECONDITION, text)
            member.draining = member.leaving = draining
            try:
                done = await self._parts.metadata.txn(compares, [Put(item.key, member.SerializeToString(), item.lease)])
            except LeaseNotFound:
                raise _gone(live) from None
            if done.succeeded:
                return done.revision
        raise Unavailable(f"the {live.member.service} instances keep changing")

    def _partitions(self, environment: Environment, run_id: str) -> Left:
        """Of storage: what was last settled by this run, and in the end what names it as the owner."""

        async def left() -> int:
            count = 0
            for topic in list(environment.catalog.view.by_name.values()):
                if topic.live:
                    owned = (self._parts.ownership.get(topic.id, index) for index in range(topic.partitions))
                    count += sum(each is not None and each.owner == run_id for each in owned)
                # There may be very many: others go on meanwhile.
                await trio.lowlevel.checkpoint()
            if count:
                return count
            # What was being taken over when the drain began is in no history yet.
            states = await self._parts.metadata.read_prefix(paths.partition_states_prefix(self._parts.namespace))
            return sum(PartitionState.FromString(item.value).owner == run_id for item in states.items)

        return left

    def _shards(self, run_id: str) -> Left:
        """Of a coordinator: what it had once, until somebody else has it."""
        had: set[str] = set()

        async def left() -> int:
            shards = await self._parts.metadata.read_prefix(paths.group_shards_prefix(self._parts.namespace))
            owners = {item.key: GroupShard.FromString(item.value).owner for item in shards.items}
            had.update(key for key, owner in owners.items() if owner == run_id)
            return sum(owners.get(key, _RELEASED) in (run_id, _RELEASED) for key in had)

        return left


def _another(live: LiveMember, member: Member, placed: tuple[LiveMember, ...]) -> LiveMember:
    """Who is given what ``live`` has. Raises StatusError."""
    service = member.service
    if member.leaving:
        text = f"The {service} instance {live.address} is stopping already, and gives what it has to the others."
        raise StatusError(_STATUS.FAILED_PRECONDITION, text)
    others = [each for each in placed if each.run_id != live.run_id]
    if not others:
        text = (
            f"The {service} instance {live.address} is the last one that is given anything: start another one, or "
            "cancel the drain of another."
        )
        raise StatusError(_STATUS.FAILED_PRECONDITION, text)
    return others[0]


def _check(live: LiveMember, view: MembersView) -> None:
    """Whether the drain goes on. Where the instance has gone the others take over what it had when its lease ends."""
    now = view.by_run_id.get(live.run_id)
    where = f"The {live.member.service} instance {live.address}"
    if now is not None and not now.member.leaving:
        raise StatusError(_STATUS.ABORTED, f"{where}: its drain was cancelled.")
    if any(each.address == live.address and each.run_id != live.run_id for each in view.placed):
        raise StatusError(_STATUS.ABORTED, f"{where} was started anew, or lost its lease: it is given what it had.")


def _gone(live: LiveMember) -> StatusError:
    return StatusError(_STATUS.NOT_FOUND, f"The {live.member.service} instance {live.address} has gone.")
