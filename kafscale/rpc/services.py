"""Binds the service objects for `kafscale.rpc.server.RpcServer` and `kafscale.rpc.direct.Direct`."""

from kafscale.rpc import generated
from kafscale.rpc.methods import BoundService, bind


def bind_storage(service: generated.SegmentStorage) -> BoundService:
    """Bind a storage service. Scans have large messages."""
    return bind(generated.SEGMENT_STORAGE, service, large=("Scan",))


def bind_indexer(service: generated.Indexer) -> BoundService:
    return bind(generated.INDEXER, service)


def bind_coordinator(service: generated.GroupCoordinator) -> BoundService:
    """Bind a coordinator. Members that join wait for each other."""
    return bind(generated.GROUP_COORDINATOR, service, waiting=("JoinGroup", "SyncGroup"))
