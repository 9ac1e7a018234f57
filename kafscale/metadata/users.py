"""Users and their SCRAM credentials in the metadata store: a watched view for reads, and changes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.interface import KeyValue, MetadataStore
from kafscale.metadata.watched import WatchedValues
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
        self._namespace = namespace
        self._users: Mapping[str, User] = {}
        self._values = WatchedValues(
            store, paths.users_prefix(namespace), decode=User.read, encode=User.value, show=self._show
        )

    @property
    def users(self) -> Mapping[str, User]:
        """The users by name."""
        return self._users

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the users current until cancelled. Started after the first read; raises Refused only before that."""
        await self._values.run(task_status=task_status)

    async def change(self, name: str, change: Callable[[Credentials], Credentials]) -> None:
        """Change the credentials of a user, who may not exist yet. Without credentials, there is no user.

        ``change`` may be called several times. Raises its errors, Unavailable and Refused.
        """

        def changed(found: User | None) -> User | None:
            credentials = change(found.credentials if found else {})
            return User(name, credentials) if credentials else None

        await self._values.change(paths.user_key(self._namespace, name), changed)

    def _show(self, values: Mapping[str, User]) -> None:
        self._users = {user.name: user for user in values.values()}
