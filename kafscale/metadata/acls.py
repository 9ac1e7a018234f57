"""ACLs in the metadata store: a watched view for decisions, and changes.

The key of an ACL is derived from its content, so the same ACL is stored once, and changes need not read anything.
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256

import trio

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.follow import follow
from kafscale.metadata.interface import Delete, Event, KeyValue, MetadataStore, Operation, Put, Snapshot
from kafscale.security import acls
from kafscale.security.acls import Acl, AclSet, PatternType, Permission, ResourceType
from kafscale.v1.metadata_pb2 import Acl as StoredAcl

_FORMAT = 1
_AT_ONCE = 100
"""ACLs in one transaction. etcd allows 128 operations by default."""


def _key(namespace: str, acl: Acl) -> str:
    fields = (acl.resource_type, acl.pattern_type, acl.name, acl.principal, acl.host, acl.operation, acl.permission)
    return paths.acl_key(namespace, sha256(json.dumps(fields).encode()).hexdigest()[:32])


def _value(acl: Acl) -> bytes:
    return StoredAcl(
        format=_FORMAT,
        resource_type=acl.resource_type,
        pattern_type=acl.pattern_type,
        name=acl.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    ).SerializeToString()


def read(item: KeyValue) -> Acl:
    """Read a value of the store. Raises CorruptData for one that a later release wrote: a rule that this release
    does not know must not be left out of decisions."""
    stored = StoredAcl.FromString(item.value)
    if stored.format != _FORMAT:
        raise CorruptData(f"{item.key} has format {stored.format}, which this release does not know")
    try:
        return Acl(
            ResourceType(stored.resource_type),
            PatternType(stored.pattern_type),
            stored.name,
            stored.principal,
            stored.host,
            acls.Operation(stored.operation),
            Permission(stored.permission),
        )
    except ValueError as error:
        raise CorruptData(f"{item.key}: {error}") from None


class AclCatalog:
    """All ACLs of a namespace. `run` must be running, because a change returns only when it is in the view."""

    def __init__(self, store: MetadataStore, namespace: str, without_acls: AclSet) -> None:
        """``without_acls``: the decisions if there are no ACLs."""
        self._store = store
        self._namespace = namespace
        self._without_acls = without_acls
        self._by_key: dict[str, Acl] = {}
        self._revision = 0
        self._changed = trio.Event()
        self.current = without_acls
        """What the ACLs decide now. A change makes a new set."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the ACLs current until cancelled. Started after the first read; raises Refused only before that."""
        prefix = paths.acls_prefix(self._namespace)
        await follow(self._store, prefix, reset=self._reset, apply=self._apply, task_status=task_status)

    async def create(self, new: Sequence[Acl]) -> None:
        """Create ACLs, unless they exist. Raises Unavailable and Refused; some may be created then."""
        await self._change([Put(_key(self._namespace, acl), _value(acl)) for acl in new])

    async def delete(self, gone: Sequence[Acl]) -> None:
        """Delete ACLs, if they exist. Raises Unavailable and Refused; some may be deleted then."""
        await self._change([Delete(_key(self._namespace, acl)) for acl in gone])

    async def _change(self, operations: Sequence[Operation]) -> None:
        for first in range(0, len(operations), _AT_ONCE):
            some = operations[first : first + _AT_ONCE]
            revision = (await self._store.txn([], some)).revision
            while self._revision < revision and not self._shows(some):
                await self._changed.wait()

    def _shows(self, operations: Iterable[Operation]) -> bool:
        """Whether the view is as after these operations. A deletion of nothing is not an event, so it has no revision
        that the view could reach."""
        return all((each.key in self._by_key) == isinstance(each, Put) for each in operations)

    def _reset(self, snapshot: Snapshot) -> None:
        self._by_key = {item.key: read(item) for item in snapshot.items}
        self._show(self._without_acls.changed(self._by_key.values(), ()), snapshot.revision)

    def _apply(self, events: tuple[Event, ...]) -> None:
        before = set(self._by_key.values())
        touched = set[Acl]()
        for event in events:
            if event.value is not None:
                self._by_key[event.key] = read(event.value)
                touched.add(self._by_key[event.key])
            elif event.key in self._by_key:
                touched.add(self._by_key.pop(event.key))
        after = set(self._by_key.values())
        self._show(self.current.changed((after - before) & touched, touched - after), events[-1].revision)

    def _show(self, current: AclSet, revision: int) -> None:
        self.current, self._revision = current, revision
        changed, self._changed = self._changed, trio.Event()
        changed.set()
