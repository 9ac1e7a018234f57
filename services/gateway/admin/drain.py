"""Drains instances: they hand over all that they own and are assigned nothing until the drain is cancelled.

The mark is a flag in the instance's own registration and ends with it. All processes that watch the members see it,
including the instance itself, and act as they do when a process announces that it is leaving.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import grpc
import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import MAX_PLAIN, Get, KeyValue, LeaseNotFound, Put, Unchanged
from kafscale.metadata.members import LiveMember, Members, MembersView, live_member
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.groups_pb2 import GroupShard
from kafscale.v1.metadata_pb2 import Member, PartitionState
from services.gateway.api import Environment
from services.gateway.owners.commit_view import Key
from services.gateway.service import GatewayDependencies

_STATUS = grpc.StatusCode
_ATTEMPTS = 8
_LOOK_SECONDS = 0.25
"""The interval at which the remaining partitions or shards are counted."""

Send = Callable[[pb.DrainProgress], Awaitable[None]]
Remaining = Callable[[], Awaitable[int]]


class Drains:
    """``members`` are those of each service by its name and must be running. Methods raise StatusError, Unavailable."""

    def __init__(self, parts: GatewayDependencies, members: Mapping[str, Members]) -> None:
        self._parts = parts
        self._members = members

    async def drain(self, environment: Environment, request: pb.DrainInstanceRequest, send: Send) -> None:
        """Drain an instance, and report progress until others own all that it owned."""
        live = self._instance(request.instance)
        revision = await self._mark(live, draining=True)
        service = live.member.service
        members = self._members[service]
        while members.view.revision < revision:
            await members.changed()
        progress = pb.DrainProgress(service=service, address=live.address, run_id=live.run_id, remaining=-1)
        with ExitStack() as stack:
            if service == "storage":
                owned = stack.enter_context(self._owned_by(live.run_id))
                count = self._partitions(environment, owned, live.run_id)
            else:
                count = self._shards(live)
            while remaining := await count():
                if remaining != progress.remaining:
                    progress.total, progress.remaining = max(progress.total, remaining), remaining
                    await send(progress)
                _check(live, members.view)
                await trio.sleep(_LOOK_SECONDS)
        progress.remaining, progress.done = 0, True
        await send(progress)

    async def cancel(self, request: pb.CancelDrainRequest) -> pb.CancelDrainReply:
        live = self._instance(request.instance)
        await self._mark(live, draining=False)
        return pb.CancelDrainReply(service=live.member.service, address=live.address, run_id=live.run_id)

    def _instance(self, name: str) -> LiveMember:
        """Find an instance by address or run id. An older run whose lease has not expired is found by run id only."""
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
            text = (
                f"The {live.member.service} {name} owns nothing that could be moved. You can stop it; others take over "
                "its work."
            )
            raise StatusError(_STATUS.FAILED_PRECONDITION, text)
        return live

    async def _mark(self, live: LiveMember, *, draining: bool) -> int:
        """Set the flag in the registration, and return the revision from which it is set."""
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
                # If this one changed, two concurrent drains could leave no instance.
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

    @contextmanager
    def _owned_by(self, run_id: str) -> Iterator[dict[bytes, set[int]]]:
        """A context that gives the partitions, by topic id, whose last settled epoch is this run's, kept up to date."""
        ownership = self._parts.ownership
        owned: dict[bytes, set[int]] = {}

        def look(key: Key, _: str = "") -> None:
            topic_id, partition = key
            now = ownership.get(*key)
            if now is not None and now.owner == run_id:
                owned.setdefault(topic_id, set()).add(partition)
            elif topic_id in owned:
                owned[topic_id].discard(partition)
                if not owned[topic_id]:
                    del owned[topic_id]

        stop_listening = ownership.listen(look)
        try:
            for key in ownership.owned_by(run_id):
                look(key)
            yield owned
        finally:
            stop_listening()

    def _partitions(self, environment: Environment, owned: Mapping[bytes, set[int]], run_id: str) -> Remaining:
        """Count the partitions in ``owned``; if there are none, those whose state still names the run as owner."""
        named: set[str] = set()

        def names(item: KeyValue | None) -> bool:
            return item is not None and PartitionState.FromString(item.value).owner == run_id

        async def remaining() -> int:
            topics = environment.catalog.view.by_id
            count = sum(len(some) for topic_id, some in owned.items() if (at := topics.get(topic_id)) and at.live)
            if count:
                return count
            # Partitions that were being taken over when the drain began are not in the ownership map yet.
            for keys in _batches(sorted(named)):
                found = (await self._parts.metadata.txn((), [Get(key) for key in keys])).reads
                named.difference_update(key for key, item in zip(keys, found, strict=True) if not names(item))
            if not named:
                states = await self._parts.metadata.read_prefix(paths.partition_states_prefix(self._parts.namespace))
                named.update(item.key for item in states.items if names(item))
            return len(named)

        return remaining

    def _shards(self, live: LiveMember) -> Remaining:
        """Count the shards that the coordinator had, or would be assigned, and that their new owner has not claimed.

        Shards that it would be assigned are included because it may claim them before it notices the drain.
        """
        members = self._members[live.member.service]
        member = Member()
        member.CopyFrom(live.member)
        member.draining = member.leaving = False
        others = [each for each in members.view if each.run_id != live.run_id]
        before = MembersView.of(members.view.revision, [*others, LiveMember(member, live.since)])
        keys = {paths.group_shard_key(self._parts.namespace, shard): shard for shard in range(paths.GROUP_SHARDS)}
        had = {
            key for key, shard in keys.items() if (owner := before.shard_owner(shard)) and owner.run_id == live.run_id
        }

        async def remaining() -> int:
            shards = await self._parts.metadata.read_prefix(paths.group_shards_prefix(self._parts.namespace))
            owners = {item.key: GroupShard.FromString(item.value).owner for item in shards.items}
            had.update(key for key in keys if owners.get(key) == live.run_id)
            assigned = {key: members.view.shard_owner(keys[key]) for key in had}
            return sum(to is None or owners.get(key) != to.run_id for key, to in assigned.items())

        return remaining


def _batches(keys: list[str]) -> Iterator[list[str]]:
    """Split ``keys`` into lists that one transaction can read."""
    return (keys[start : start + MAX_PLAIN] for start in range(0, len(keys), MAX_PLAIN))


def _another(live: LiveMember, member: Member, placed: tuple[LiveMember, ...]) -> LiveMember:
    """Return an instance that takes over what ``live`` owns. Raises StatusError if ``live`` cannot be drained."""
    service = member.service
    if member.leaving:
        text = f"The {service} instance {live.address} is already stopping and hands over what it owns."
        raise StatusError(_STATUS.FAILED_PRECONDITION, text)
    others = [each for each in placed if each.run_id != live.run_id]
    if not others:
        text = (
            f"The {service} instance {live.address} is the only one that is not drained or stopping. Start another "
            "one, or cancel the drain of another."
        )
        raise StatusError(_STATUS.FAILED_PRECONDITION, text)
    return others[0]


def _check(live: LiveMember, view: MembersView) -> None:
    """Raise StatusError if the drain has ended. If the instance is gone, others take over when its lease ends."""
    now = view.by_run_id.get(live.run_id)
    where = f"The {live.member.service} instance {live.address}"
    if now is not None and not now.member.leaving:
        raise StatusError(_STATUS.ABORTED, f"The drain was cancelled. {where} is assigned work again.")
    if any(each.address == live.address and each.run_id != live.run_id for each in view.placed):
        text = f"{where} restarted or lost its lease, which ends the drain. Drain the new run."
        raise StatusError(_STATUS.ABORTED, text)


def _gone(live: LiveMember) -> StatusError:
    return StatusError(_STATUS.NOT_FOUND, f"The {live.member.service} instance {live.address} is gone.")
