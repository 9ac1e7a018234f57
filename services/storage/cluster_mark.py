"""Whose prefix it is: an object in it names the cluster, so that two clusters cannot write into one."""

import structlog
import trio

from kafscale import paths
from kafscale.errors import ConfigError, Unavailable
from kafscale.objects.interface import ObjectStore, PreconditionFailed

log = structlog.get_logger()

_PAUSE = 1.0


async def mark_prefix(objects: ObjectStore, namespace: str, cluster_id: str) -> None:
    """Mark a new prefix, however long the store, which was found to be the right one, is throttled.

    Raises ConfigError where it is another cluster's.
    """
    while True:
        try:
            await _mark(objects, namespace, cluster_id)
            return
        except Unavailable as error:
            log.warning("waiting for the object store", error=str(error))
            await trio.sleep(_PAUSE)


async def _mark(objects: ObjectStore, namespace: str, cluster_id: str) -> None:
    key = paths.cluster_mark_key(namespace)
    try:
        await objects.put_if_absent(key, cluster_id.encode())
    except PreconditionFailed:
        there = (await objects.get(key)).body.decode(errors="replace")
        if there != cluster_id:
            raise ConfigError(
                f"KAFSCALE_S3_NAMESPACE: the objects under {namespace}/ belong to cluster {there}, "
                f"the metadata to cluster {cluster_id}"
            ) from None
