"""The cluster mark, an object that names the cluster of a namespace, so that two clusters cannot write into one."""

import structlog
import trio

from kafscale import paths
from kafscale.errors import ConfigError, Unavailable
from kafscale.metadata.interface import MetadataStore
from kafscale.objects.interface import ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.v1.metadata_pb2 import PartitionState

log = structlog.get_logger()

_PAUSE = 1.0


async def mark_prefix(objects: ObjectStore, metadata: MetadataStore, namespace: str, cluster_id: str) -> None:
    """Check the mark, or create it in a new namespace, retrying while the stores are unavailable.

    Raises ConfigError if the mark is another cluster's, or is missing although records were committed. Their objects
    are then elsewhere and must not be treated as deleted.
    """
    while True:
        try:
            await _mark(objects, metadata, namespace, cluster_id)
            return
        except Unavailable as error:
            log.warning("waiting for the stores", error=str(error))
            await trio.sleep(_PAUSE)


async def _mark(objects: ObjectStore, metadata: MetadataStore, namespace: str, cluster_id: str) -> None:
    key = paths.cluster_mark_key(namespace)
    there = await _read(objects, key)
    if not there and await _has_records(metadata, namespace):
        # Another instance may have created the mark and committed since the read.
        there = await _read(objects, key)
        if not there:
            raise ConfigError(
                f"KAFSCALE_S3_BUCKET, KAFSCALE_S3_NAMESPACE, KAFSCALE_DATA_DIR: {key} is missing, but the metadata of "
                f"cluster {cluster_id} refers to stored records. Either the bucket or directory is the wrong one, or "
                f"the object was deleted. In that case restore it with the content {cluster_id}"
            )
    if not there:
        try:
            await objects.put_if_absent(key, cluster_id.encode())
            return
        except PreconditionFailed:
            there = await _read(objects, key)
    if there != cluster_id:
        raise ConfigError(
            f"KAFSCALE_S3_NAMESPACE: the objects under {namespace}/ belong to cluster {there}, "
            f"the metadata to cluster {cluster_id}"
        )


async def _read(objects: ObjectStore, key: str) -> str:
    """Return the cluster id in the mark, or an empty string if there is no mark."""
    try:
        return (await objects.get(key)).body.decode(errors="replace")
    except ObjectNotFound:
        return ""


async def _has_records(metadata: MetadataStore, namespace: str) -> bool:
    """Return whether any partition ever had a committed segment."""
    states = await metadata.read_prefix(paths.partition_states_prefix(namespace))
    return any(PartitionState.FromString(item.value).high_watermark > 0 for item in states.items)
