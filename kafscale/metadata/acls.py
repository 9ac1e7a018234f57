"""ACLs in the metadata store: a watched view for decisions, and changes.

The key of an ACL is derived from its content, so the same ACL is stored once, and changes need not read anything.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256

import trio

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.interface import KeyValue, MetadataStore
from kafscale.metadata.watched import WatchedValues
from kafscale.security.acls import Acl, AclSet, Operation, PatternType, Permission, ResourceType
from kafscale.v1.metadata_pb2 import Acl as StoredAcl

_FORMAT = 1


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
            Operation(stored.operation),
            Permission(stored.permission),
        )
    except ValueError as error:
        raise CorruptData(f"{item.key}: {error}") from None


class AclCatalog:
    """All ACLs of a namespace. `run` must be running, because a change returns only when it is in the view."""

    def __init__(self, store: MetadataStore, namespace: str, without_acls: AclSet) -> None:
        """``without_acls``: the decisions if there are no ACLs."""
        self._namespace = namespace
        self._values = WatchedValues(store, paths.acls_prefix(namespace), decode=read, encode=_value, show=self._show)
        self.current = without_acls
        """What the ACLs decide now. A change makes a new set."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the ACLs current until cancelled. Started after the first read; raises Refused only before that."""
        await self._values.run(task_status=task_status)

    async def create(self, new: Iterable[Acl]) -> None:
        """Create ACLs, unless they exist. Raises Unavailable and Refused; some may be created then."""
        await self._values.replace({_key(self._namespace, acl): acl for acl in new})

    async def delete(self, gone: Iterable[Acl]) -> None:
        """Delete ACLs, if they exist. Raises Unavailable and Refused; some may be deleted then."""
        await self._values.replace({_key(self._namespace, acl): None for acl in gone})

    def _show(self, values: Mapping[str, Acl]) -> None:
        before, after = self.current.acls, frozenset(values.values())
        self.current = self.current.changed(after - before, before - after)
