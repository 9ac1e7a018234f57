"""The broker ids of gateways, kept in the metadata store so that an instance has the same one after a restart.

An id is claimed first and registered then; in between another gateway may take it away, for it sees nobody live on it.
So a claim counts only when `NodeIds.confirm` says so, after the registration: whoever claims later reads a record that
changed, or a live member.
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
    """``revision``: of the record that says so."""

    node_id: int
    revision: int


class NodeIds:
    """For the gateway ``instance``, which is its first advertised listener; ``wanted``: the id set by its operator."""

    def __init__(self, store: MetadataStore, namespace: str, *, instance: str, wanted: int | None = None) -> None:
        self._store = store
        self._namespace = namespace
        self._instance = instance
        self._wanted = wanted

    async def claim(self) -> Claim:
        """Take the wanted id, else the one this instance had, else the lowest that belongs to nobody who is live.

        Raises ConfigError when another live instance has the wanted one (it may be this one's former run, at another
        address, until that lease ends), Unavailable.
        """
        while True:
            records = await self._records()
            # Read after the records: who registered and confirmed before that read is seen here, who does later
            # changes its record.
            live = await self._live()
            node_id = self._choice(records, live)
            record = records.get(node_id)
            revision = await self._write(node_id, record.mod_revision if record else 0)
            if revision:
                return Claim(node_id, revision)

    async def confirm(self, claim: Claim) -> bool:
        """Whether the id is still this instance's; asked when it is registered as a live member. Raises Unavailable."""
        return bool(await self._write(claim.node_id, claim.revision))

    def _choice(self, records: Mapping[int, KeyValue], live: Mapping[int, set[str]]) -> int:
        if self._wanted is not None:
            others = live.get(self._wanted, set()) - {self._instance}
            if others:
                raise ConfigError(f"KAFSCALE_BROKER_ID: {self._wanted} is the id of a live gateway at {min(others)}")
            return self._wanted
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
        """The instances of live gateways by their ids."""
        live: dict[int, set[str]] = {}
        snapshot = await self._store.read_prefix(paths.members_prefix(self._namespace, "gateway"))
        for item in snapshot.items:
            member = Member.FromString(item.value)
            live.setdefault(member.node_id, set()).add(instance_of(member))
        return live

    async def _write(self, node_id: int, revision: int) -> int:
        """Say that the id is this instance's, unless the record changed since ``revision``; the new revision, or 0."""
        key = paths.node_id_key(self._namespace, node_id)
        value = NodeId(format=_FORMAT, instance=self._instance).SerializeToString()
        result = await self._store.txn([Unchanged(key, revision)], [Put(key, value)])
        return result.revision if result.succeeded else 0

    @staticmethod
    def _instance_of(record: KeyValue) -> str:
        stored = NodeId.FromString(record.value)
        if stored.format != _FORMAT:
            raise CorruptData(f"{record.key}: format {stored.format}, known is {_FORMAT}")
        return stored.instance


def instance_of(member: Member) -> str:
    """What a gateway keeps over restarts: the address of its first listener as clients are told it."""
    first = member.listeners[0] if member.listeners else Member.Listener()
    return f"{first.host}:{first.port}"
