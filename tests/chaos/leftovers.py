"""What is stored of a log that is rewritten, and what of it nobody needs."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

import trio

from kafscale import paths
from kafscale.config.etcd import EtcdSettings
from kafscale.config.settings import load
from kafscale.config.stores import S3Settings
from kafscale.metadata.etcd import open_etcd
from kafscale.objects.interface import ObjectStore
from kafscale.objects.s3 import S3ObjectStore
from kafscale.rewritten.keys import RewrittenKey, rewritten_prefix
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.reading.roots import read_rewritten, root_key


@dataclass(frozen=True, slots=True)
class RewrittenState:
    """The number of a log's root and the epoch in which it was committed, 0 if there is none, and the log's epoch.

    ``left``: the keys of objects that the root does not name, also of an attempt that has not ended.
    """

    root: int
    root_epoch: int
    epoch: int
    left: Set[str]


def rewritten_state(env: Mapping[str, str], topic: str) -> RewrittenState:
    """Return the state of partition 0 of a topic. ``env`` has the settings of its cluster."""
    return trio.run(_read, env, PartitionRef(topic=topic))


async def _read(env: Mapping[str, str], ref: PartitionRef) -> RewrittenState:
    objects_settings = load(S3Settings, env)
    namespace = objects_settings.namespace
    async with (
        open_etcd(load(EtcdSettings, env).config(), random=lambda: 0.5) as metadata,
        S3ObjectStore.open(objects_settings.s3_config()) as objects,
    ):
        # What is listed before the state is read can only have become obsolete.
        stored = await _stored(objects, namespace, ref)
        item = await metadata.get(paths.partition_state_key(namespace, ref.topic, ref.partition))
        assert item is not None
        state = PartitionState.FromString(item.value)
        rewritten = await read_rewritten(objects, namespace, ref, state)
        if rewritten is None:
            left = {key for key in stored if paths.parse_segment_key(key) is None}
            return RewrittenState(0, 0, state.epoch, left)
        assert rewritten.root is not None, rewritten.fault
        needed = {root_key(namespace, ref, state.root), *rewritten.root.obsolete}
        for entry in rewritten.root.entries:
            if entry.found is not None:
                key = RewrittenKey.of(entry.found, namespace, ref.topic, ref.partition)
                needed |= {str(key), str(key.index)}
        left = {key for key in stored - needed if not _is_segment_from(key, state.root.through)}
        return RewrittenState(state.root.number, state.root.epoch, state.epoch, left)


async def _stored(objects: ObjectStore, namespace: str, ref: PartitionRef) -> set[str]:
    """Return the keys of all segments, rewritten objects, their indexes, and roots."""
    found: set[str] = set()
    for prefix in (
        paths.partition_prefix(namespace, ref.topic, ref.partition),
        rewritten_prefix(namespace, ref.topic, ref.partition),
    ):
        after = ""
        while page := await objects.list_from(prefix, after):
            after = page[-1].key
            found |= {info.key for info in page}
    return found


def _is_segment_from(key: str, offset: int) -> bool:
    segment = paths.parse_segment_key(key)
    return segment is not None and segment.base_offset >= offset
