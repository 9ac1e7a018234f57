"""What a run of the storage service works with: settings, stores, clocks and other services."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.members import Members
from kafscale.metadata.membership import suspension_clock
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import ObjectStore
from kafscale.rpc.generated import IndexerClient
from kafscale.threads import RunSync
from kafscale.tracing import Tracer
from services.storage.counters import StorageCounters
from services.storage.settings import StorageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What whoever starts the service passes in; a run makes all else itself."""

    settings: StorageSettings
    namespace: str
    objects: ObjectStore
    metadata: MetadataStore
    catalog: TopicCatalog
    # The members of "storage", this one included; whoever composes runs it.
    members: Members
    indexer: IndexerClient
    now_ms: Callable[[], int]
    run_sync: RunSync
    # Where other services reach this instance; empty: they are in its process.
    address: str = ""
    # Where readers and writers of whole topics reach it then; empty: nowhere.
    listener: str = ""
    # None: nothing is traced.
    tracer: Tracer | None = None
    lease_clock: Callable[[], float] = suspension_clock
    counters: StorageCounters = field(default_factory=StorageCounters)
