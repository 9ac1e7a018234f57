"""Binds the service objects for `kafscale.rpc.server.RpcServer` and `kafscale.rpc.direct.Direct`."""

from kafscale.rpc import generated
from kafscale.rpc.access import CallGuard
from kafscale.rpc.methods import BoundService, bind


def bind_storage(service: generated.SegmentStorage, guard: CallGuard | None = None) -> BoundService:
    """Bind a storage service. Scans have large messages."""
    return bind(generated.SEGMENT_STORAGE, service, large=("Scan",), guard=guard)


def bind_indexer(service: generated.Indexer, guard: CallGuard | None = None) -> BoundService:
    return bind(generated.INDEXER, service, guard=guard)


def bind_coordinator(service: generated.GroupCoordinator, guard: CallGuard | None = None) -> BoundService:
    """Bind a coordinator. Members that join wait for each other."""
    return bind(generated.GROUP_COORDINATOR, service, waiting=("JoinGroup", "SyncGroup"), guard=guard)


def bind_process(service: generated.Process, guard: CallGuard | None = None) -> BoundService:
    return bind(generated.PROCESS, service, guard=guard)
