"""What puts the services' objects behind `kafscale.rpc.server.RpcServer` and `kafscale.rpc.direct.Direct`."""

from kafscale.rpc import generated
from kafscale.rpc.methods import BoundService, bind


def bind_storage(service: generated.SegmentStorage) -> BoundService:
    """Scans have large messages."""
    return bind(generated.SEGMENT_STORAGE, service, large=("Scan",))


def bind_indexer(service: generated.Indexer) -> BoundService:
    return bind(generated.INDEXER, service)


def bind_coordinator(service: generated.GroupCoordinator) -> BoundService:
    """Members that join wait for each other."""
    return bind(generated.GROUP_COORDINATOR, service, waiting=("JoinGroup", "SyncGroup"))
