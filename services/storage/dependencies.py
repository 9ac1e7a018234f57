"""The dependencies of a storage run: settings, stores, clocks and other services."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.members import LiveMember, Members
from kafscale.metadata.membership import suspension_clock
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import ObjectStore
from kafscale.rpc.generated import IndexerClient, SegmentStorageClient
from kafscale.threads import RunSync
from kafscale.tracing import Tracer
from services.storage.counters import StorageCounters
from services.storage.settings import StorageSettings

Connect = Callable[[LiveMember], AbstractAsyncContextManager[SegmentStorageClient]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Passed in by the process that starts the service. A run creates everything else itself."""

    settings: StorageSettings
    namespace: str
    objects: ObjectStore
    metadata: MetadataStore
    catalog: TopicCatalog
    # The members of "storage", including this one. The caller runs its task.
    members: Members
    indexer: IndexerClient
    now_ms: Callable[[], int]
    run_sync: RunSync
    # The address for other services; empty if they run in this process.
    address: str = ""
    # The address for readers and writers of whole topics in that case; empty if there is none.
    listener: str = ""
    # Connects to another storage instance. None if there is only this one.
    connect: Connect | None = None
    # Whether a power failure can damage intake objects, in a directory that only this process uses.
    intake_unsynced: bool = False
    # The same objects without retries, for writes that repeat themselves. None: ``objects`` does not retry.
    single_tries: ObjectStore | None = None
    # None if tracing is off.
    tracer: Tracer | None = None
    lease_clock: Callable[[], float] = suspension_clock
    counters: StorageCounters = field(default_factory=StorageCounters)
