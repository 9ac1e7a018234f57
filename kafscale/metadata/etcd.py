"""The metadata store that several processes share: etcd.

The interface has etcd's semantics. This module adds fail-over between members, and never repeats a transaction that may
already have been applied.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from kafscale.errors import Refused, Unavailable
from kafscale.etcdpb import etcd_pb2 as pb
from kafscale.metadata.etcd_client import EtcdClient, EtcdConfig
from kafscale.metadata.etcd_errors import FutureRevision, ReplyTooLarge
from kafscale.metadata.etcd_maintenance import EtcdMaintenance, EtcdStatus, status_of
from kafscale.metadata.etcd_watch import EtcdWatch
from kafscale.metadata.etcd_wire import (
    COMPACT,
    GRANT,
    KEEP_ALIVE,
    RANGE,
    REVOKE,
    STATUS,
    TXN,
    key_value,
    prefix_range,
    txn_request,
    txn_result,
)
from kafscale.metadata.interface import (
    Compacted,
    Get,
    KeyValue,
    LeaseNotFound,
    Operation,
    Page,
    Snapshot,
    TxnResult,
    Unchanged,
    Watch,
)
from kafscale.metadata.state import check_size

_PAGE_KEYS = 512
# etcd accepts no value above 1.5 MiB, so a page of this size always fits in a message.
_FEWEST_PAGE_KEYS = 32
_MOST_LIMITS = 64


@asynccontextmanager
async def open_etcd(config: EtcdConfig, *, random: Callable[[], float]) -> AsyncIterator["EtcdMetadataStore"]:
    """Open the store of ``config`` without contacting etcd yet. ``random`` (0 to 1) spreads members and pauses.

    Raises ConfigError if the TLS files cannot be used.
    """
    async with EtcdClient(config, random) as client:
        yield EtcdMetadataStore(client)


class EtcdMetadataStore:
    """See `kafscale.metadata.interface.MetadataStore`.

    Besides Unavailable, every method raises Refused if etcd rejects the user or the user lacks the permission.
    """

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self.maintenance = EtcdMaintenance(client)
        # Page sizes of prefixes whose values are too large for full pages, until their last page is read.
        self._limits: dict[str, int] = {}

    async def get(self, key: str) -> KeyValue | None:
        reply = await self._client.call(RANGE, pb.RangeRequest(key=key.encode()), repeatable=True)
        return key_value(reply.kvs[0]) if reply.kvs else None

    async def read_prefix(self, prefix: str) -> Snapshot:
        while True:
            # Between two pages, the first page's revision may be compacted, or etcd restored to an earlier one.
            with suppress(Compacted):
                return await self._read_pages(prefix)

    async def read_page(self, prefix: str, *, after: str = "", revision: int = 0) -> Page:
        key, end = prefix_range(prefix)
        if after:
            key = after.encode(errors="surrogateescape") + b"\0"
        limit = self._limits.get(prefix, _PAGE_KEYS)
        while True:
            request = pb.RangeRequest(key=key, range_end=end, limit=limit, revision=revision)
            try:
                reply = await self._client.call(RANGE, request, repeatable=True)
            except FutureRevision as error:
                raise Compacted(str(error)) from error
            except ReplyTooLarge as error:
                if limit <= _FEWEST_PAGE_KEYS:
                    raise Refused(f"values exceed etcd's default size limit: {error}") from error
                limit //= 4
                self._keep_limit(prefix, limit)
                continue
            if not reply.more:
                self._limits.pop(prefix, None)
            return Page(revision or reply.header.revision, tuple(map(key_value, reply.kvs)), reply.more)

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        check_size(compares, then, otherwise)
        request = txn_request(compares, then, otherwise)
        reads_only = all(isinstance(operation, Get) for operation in (*then, *otherwise))
        try:
            reply = await self._client.call(TXN, request, repeatable=reads_only)
        except ReplyTooLarge as error:
            raise Unavailable(f"the transaction's reply was lost: {error}") from error
        return txn_result(reply, then, otherwise)

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Watch]:
        watch = EtcdWatch(self._client, prefix, from_revision)
        try:
            yield watch
        finally:
            await watch.aclose()

    async def grant_lease(self, ttl_seconds: int) -> int:
        if ttl_seconds < 1:
            raise ValueError("a lease must last at least one second")
        # A lease that is granted but whose reply is lost simply expires.
        reply = await self._client.call(GRANT, pb.LeaseGrantRequest(TTL=ttl_seconds), repeatable=True)
        return reply.ID

    async def keep_alive(self, lease: int) -> int:
        reply = await self._client.call(KEEP_ALIVE, pb.LeaseKeepAliveRequest(ID=lease), repeatable=True)
        if reply.TTL <= 0:
            raise LeaseNotFound(f"lease {lease}")
        return reply.TTL

    async def revoke_lease(self, lease: int) -> None:
        with suppress(LeaseNotFound):
            await self._client.call(REVOKE, pb.LeaseRevokeRequest(ID=lease), repeatable=True)

    async def compact(self, revision: int) -> None:
        try:
            await self._client.call(COMPACT, pb.CompactionRequest(revision=revision), repeatable=True)
        except Compacted:
            pass
        except FutureRevision:
            await self.compact((await self.status()).revision)

    async def status(self) -> EtcdStatus:
        """Return the status of the current member."""
        member = self._client.current
        return status_of(member.address, await self._client.call(STATUS, pb.StatusRequest(), repeatable=True))

    def _keep_limit(self, prefix: str, limit: int) -> None:
        if prefix not in self._limits and len(self._limits) == _MOST_LIMITS:
            # Most likely a listing that was abandoned. If it was not, it finds its limit again.
            del self._limits[next(iter(self._limits))]
        self._limits[prefix] = limit

    async def _read_pages(self, prefix: str) -> Snapshot:
        items: list[KeyValue] = []
        page = Page(0, (), more=True)
        while page.more:
            page = await self.read_page(prefix, after=items[-1].key if items else "", revision=page.revision)
            items.extend(page.items)
        return Snapshot(page.revision, tuple(items))
