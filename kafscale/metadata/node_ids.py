"""The broker ids of gateways, kept in the metadata store so that an instance has the same id after a restart.

A gateway claims an id and then registers with it. In between, another gateway may claim the same id, because it sees no
live member that has it. So a claim is valid only once `NodeIds.confirm` has confirmed it after the registration: from
then on, another claimant sees a changed record or a live member.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafscale import paths
from kafscale.errors import ConfigError, CorruptData
from kafscale.metadata.interface import KeyValue, MetadataStore, Put, Unchanged
from kafscale.v1.metadata_pb2 import Member, NodeId

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed id. ``revision`` is that of the record of the claim."""

    node_id: int
    revision: int


class NodeIds:
    """Broker ids for the gateway ``instance``, its first advertised listener. ``configured_id`` is its setting."""

    def __init__(
        self, store: MetadataStore, namespace: str, *, instance: str, configured_id: int | None = None
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._instance = instance
        self._configured_id = configured_id

    async def claim(self) -> Claim:
        """Claim the configured id, else the id this instance had, else the lowest id that no live instance has.

        Raises Unavailable, and ConfigError if another live instance has the configured id. That may be this gateway's
        former run at another address, until its lease ends.
        """
        while True:
            records = await self._records()
            # Read after the records: gateways that registered before this read are seen here, and those that
            # register later change their record.
            live = await self._live()
            node_id = self._choice(records, live)
            record = records.get(node_id)
            revision = await self._write(node_id, record.mod_revision if record else 0)
            if revision:
                return Claim(node_id, revision)

    async def confirm(self, claim: Claim) -> bool:
        """Return whether the id is still this instance's. To be called after its registration. Raises Unavailable."""
        return bool(await self._write(claim.node_id, claim.revision))

    def _choice(self, records: Mapping[int, KeyValue], live: Mapping[int, set[str]]) -> int:
        if self._configured_id is not None:
            others = live.get(self._configured_id, set()) - {self._instance}
            if others:
                raise ConfigError(
                    f"KAFSCALE_BROKER_ID: {self._configured_id} is the id of a live gateway at {min(others)}"
                )
            return self._configured_id
        instances = {record_id: self._instance_of(record) for record_id, record in records.items()}
        present = set().union(*live.values())
        usable = [
            node_id
            for node_id in range(len(records) + len(live) + 1)
            if node_id not in live and instances.get(node_id) not in present
        ]
        mine = [
            node_id
            for node_id, instance in instances.items()
            if instance == self._instance and live.get(node_id, {instance}) == {instance}
        ]
        return min(mine or usable)

    async def _records(self) -> dict[int, KeyValue]:
        snapshot = await self._store.read_prefix(paths.node_ids_prefix(self._namespace))
        named = ((paths.parse_node_id_key(self._namespace, item.key), item) for item in snapshot.items)
        return {node_id: item for node_id, item in named if node_id is not None}

    async def _live(self) -> dict[int, set[str]]:
        """Return the instances of live gateways by broker id."""
        live: dict[int, set[str]] = {}
        snapshot = await self._store.read_prefix(paths.members_prefix(self._namespace, "gateway"))
        for item in snapshot.items:
            member = Member.FromString(item.value)
            live.setdefault(member.node_id, set()).add(instance_of(member))
        return live

    async def _write(self, node_id: int, revision: int) -> int:
        """Write this instance into the id's record and return the new revision; 0 if it changed since ``revision``."""
        key = paths.node_id_key(self._namespace, node_id)
        value = NodeId(format=_FORMAT, instance=self._instance).SerializeToString()
        result = await self._store.txn([Unchanged(key, revision)], [Put(key, value)])
        return result.revision if result.succeeded else 0

    @staticmethod
    def _instance_of(record: KeyValue) -> str:
        stored = NodeId.FromString(record.value)
        if stored.format != _FORMAT:
            raise CorruptData(f"{record.key}: format {stored.format}, expected {_FORMAT}")
        return stored.instance


def instance_of(member: Member) -> str:
    """Return a gateway's identity, which survives restarts: the advertised address of its first listener."""
    first = member.listeners[0] if member.listeners else Member.Listener()
    return f"{first.host}:{first.port}"
