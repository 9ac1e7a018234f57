"""Read the root of a partition's rewritten log."""

import structlog

from kafscale.errors import CorruptData
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale.rewritten.keys import RootKey
from kafscale.rewritten.root import CorruptRoot, parse_root, stored_crc
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import PartitionState, RootRef
from services.storage.log.rewritten import RewrittenLog

log = structlog.get_logger()


def root_key(namespace: str, ref: PartitionRef, root: RootRef) -> str:
    """Return the key of the root to which a state refers."""
    return str(RootKey(namespace, ref.topic, ref.partition, root.number, root.epoch, root.attempt))


async def read_rewritten(
    objects: ObjectStore, namespace: str, ref: PartitionRef, state: PartitionState
) -> RewrittenLog | None:
    """Return the part of the log that was rewritten, or None if there is none. Raises Unavailable, Refused.

    If the root is missing or damaged, the result has a fault, so that reads below its end fail and those above it do
    not.
    """
    if not state.HasField("root"):
        return None
    key, stated = root_key(namespace, ref, state.root), state.root
    try:
        data = (await objects.get(key)).body
        root = parse_root(data)
        found = (root.topic_id, root.number, root.through, stored_crc(data))
        if found != (state.topic_id, stated.number, stated.through, stated.crc):
            raise CorruptRoot("it is not the root to which the partition's state refers")
    except (ObjectNotFound, CorruptData) as error:
        log.error("root of a rewritten log cannot be read", key=key, reason=f"{type(error).__name__}: {error}")
        return RewrittenLog(stated, None, f"root {key}: {error}")
    return RewrittenLog(stated, root)
