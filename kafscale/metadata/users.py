"""Users and their SCRAM credentials in the metadata store: a watched view for reads, and changes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.follow import follow
from kafscale.metadata.interface import Delete, Event, KeyValue, MetadataStore, Put, Snapshot, Unchanged
from kafscale.security.scram import Credential, Mechanism
from kafscale.v1.metadata_pb2 import ScramCredential
from kafscale.v1.metadata_pb2 import User as StoredUser

_FORMAT = 1
_BY_CODE = {mechanism.code: mechanism for mechanism in Mechanism}

Credentials = Mapping[Mechanism, Credential]


@dataclass(frozen=True, slots=True)
class User:
    """A user. ``credentials`` is never empty."""

    name: str
    credentials: Credentials

    def value(self) -> bytes:
        """Return the value in the store."""
        stored = StoredUser(format=_FORMAT, name=self.name)
        for mechanism, known in self.credentials.items():
            stored.credentials.append(
                ScramCredential(
                    mechanism=mechanism.code,
                    salt=known.salt,
                    iterations=known.iterations,
                    stored_key=known.stored_key,
                    server_key=known.server_key,
                )
            )
        return stored.SerializeToString()

    @classmethod
    def read(cls, item: KeyValue) -> "User":
        """Read a value of the store. Raises CorruptData for a format of a later release."""
        stored = StoredUser.FromString(item.value)
        if stored.format != _FORMAT:
            raise CorruptData(f"{item.key} has format {stored.format}, which this release does not know")
        credentials = {
            _BY_CODE[each.mechanism]: Credential(each.salt, each.iterations, each.stored_key, each.server_key)
            for each in stored.credentials
            if each.mechanism in _BY_CODE
        }
        return cls(stored.name, credentials)


class UserCatalog:
    """All users of a namespace. `run` must be running, because a change returns only when it is in the view."""

    def __init__(self, store: MetadataStore, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._users: dict[str, User] = {}
        self._revision = 0
        self._changed = trio.Event()

    @property
    def users(self) -> Mapping[str, User]:
        """The users by name."""
        return self._users

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the users current until cancelled. Started after the first read; raises Refused only before that."""
        prefix = paths.users_prefix(self._namespace)
        await follow(self._store, prefix, reset=self._reset, apply=self._apply, task_status=task_status)

    async def change(self, name: str, change: Callable[[Credentials], Credentials]) -> None:
        """Change the credentials of a user, who may not exist yet. Without credentials, there is no user.

        ``change`` may be called several times. Raises its errors, Unavailable and Refused.
        """
        key = paths.user_key(self._namespace, name)
        while True:
            item = await self._store.get(key)
            before = {} if item is None else User.read(item).credentials
            after = change(before)
            if after == before:
                return
            operation = Put(key, User(name, after).value()) if after else Delete(key)
            result = await self._store.txn([Unchanged(key, item.mod_revision if item else 0)], [operation])
            if result.succeeded:
                await self._seen(result.revision, name, after)
                return

    async def _seen(self, revision: int, name: str, credentials: Credentials) -> None:
        """Wait until the view is as new as a change."""

        def current() -> Credentials:
            found = self._users.get(name)
            return found.credentials if found else {}

        while self._revision < revision and current() != credentials:
            await self._changed.wait()

    def _reset(self, snapshot: Snapshot) -> None:
        users = [User.read(item) for item in snapshot.items]
        self._show({user.name: user for user in users}, snapshot.revision)

    def _apply(self, events: tuple[Event, ...]) -> None:
        users = dict(self._users)
        keys = {paths.user_key(self._namespace, name): name for name in users}
        for event in events:
            if event.value is not None:
                found = User.read(event.value)
                users[found.name] = found
            elif event.key in keys:
                users.pop(keys[event.key], None)
        self._show(users, events[-1].revision)

    def _show(self, users: dict[str, User], revision: int) -> None:
        self._users, self._revision = users, revision
        changed, self._changed = self._changed, trio.Event()
        changed.set()
