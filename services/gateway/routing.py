"""Which storage instance serves a partition."""

from collections.abc import Iterable

from services.gateway.commit_view import Key
from services.gateway.storage_link import StorageLink


class Router:
    """One instance serves all partitions so far."""

    def __init__(self, link: StorageLink) -> None:
        self._link = link

    def link(self, key: Key) -> StorageLink:
        """The link to the owner of a partition, given by topic id and index."""
        return self._link

    def links(self) -> Iterable[StorageLink]:
        return (self._link,)
