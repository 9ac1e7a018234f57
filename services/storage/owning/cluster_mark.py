"""Whose prefix it is: an object in it names the cluster, so that two clusters cannot write into one."""

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
    """Mark a new prefix, however long the store is throttled.

    Raises ConfigError where it is another cluster's, or where it has no mark although records were committed: it is not
    the prefix that they are in, and what is missing in it must not look as if somebody had deleted it.
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
        # Another instance may have made the mark, and then committed, since it was read.
        there = await _read(objects, key)
        if not there:
            raise ConfigError(
                f"KAFSCALE_S3_BUCKET, KAFSCALE_S3_NAMESPACE, KAFSCALE_DATA_DIR: {key} is missing, but the metadata of "
                f"cluster {cluster_id} says that records are stored: this is another bucket or directory, or the "
                f"object was deleted. If it was, put it back: its content is the text {cluster_id}"
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
    """Empty: it is not there."""
    try:
        return (await objects.get(key)).body.decode(errors="replace")
    except ObjectNotFound:
        return ""


async def _has_records(metadata: MetadataStore, namespace: str) -> bool:
    """Whether any partition has a segment that was committed, deleted since or not."""
    states = await metadata.read_prefix(paths.partition_states_prefix(namespace))
    return any(PartitionState.FromString(item.value).high_watermark > 0 for item in states.items)
