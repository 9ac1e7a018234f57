"""The records of sinks in the metadata store: read, watch and update them."""

from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b

import structlog
import trio
from google.protobuf.message import DecodeError

from kafscale import paths
from kafscale.errors import CorruptData, Unavailable
from kafscale.metadata.follow import follow
from kafscale.metadata.interface import Event, KeyValue, MetadataStore, Put, Snapshot, Unchanged
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale.records.checksum import crc32c
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import Sink, SinkManifest
from services.storage.log.sink_progress import SinkEpoch
from services.storage.owning.owned import Key

log = structlog.get_logger()

FORMAT = 1
NO_EPOCH = -1
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class MissingStage(CorruptData):
    """An object of a committed epoch is missing or damaged."""


def key_of(ref: PartitionRef) -> Key:
    return ref.topic_id, ref.partition


def parse_sink(item: KeyValue) -> Sink:
    """Parse a sink's record. Raises Unavailable if it cannot, because another release may have written it."""
    try:
        record = Sink.FromString(item.value)
    except DecodeError as error:
        raise Unavailable(f"metadata key {item.key} does not parse") from error
    if record.format != FORMAT:
        raise Unavailable(f"metadata key {item.key} has format {record.format}, this release reads {FORMAT}")
    return record


def fingerprint(key: str) -> int:
    """Return the hash by which a sink's record identifies a discarded stage."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest())


async def read_sink(metadata: MetadataStore, namespace: str, sink: str) -> tuple[Sink, int]:
    """Return the sink's current record and its mod revision. An unknown sink has no epoch and revision 0."""
    item = await metadata.get(paths.sink_key(namespace, sink))
    if item is None:
        return Sink(format=FORMAT, sink=sink, epoch=NO_EPOCH), 0
    return parse_sink(item), item.mod_revision


async def take_out(
    metadata: MetadataStore, namespace: str, epoch: SinkEpoch, partitions: Collection[Key]
) -> Sink | None:
    """Remove the partitions from those that lack the epoch. Return the written record, or None if there are none left.

    Retries until the outcome is known.
    """
    key = paths.sink_key(namespace, epoch.sink)
    outage = Outage("sink record not updated", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    while True:
        try:
            record, revision = await read_sink(metadata, namespace, epoch.sink)
            remaining = [ref for ref in record.remaining if key_of(ref) not in partitions]
            if SinkEpoch.of(record) != epoch or len(remaining) == len(record.remaining):
                return None
            del record.remaining[:]
            record.remaining.extend(remaining)
            done = await metadata.txn([Unchanged(key, revision)], [Put(key, record.SerializeToString())])
            if done.succeeded:
                return record
        except STORE_FAILURES as error:
            await outage.pause(error, sink=epoch.sink)


async def read_manifest(objects: ObjectStore, record: Sink) -> SinkManifest:
    """Read the manifest of a committed epoch. Raises MissingStage, Unavailable."""
    body = await read_staged(objects, record.manifest, record.manifest_size, record.manifest_crc)
    try:
        manifest = SinkManifest.FromString(body)
    except DecodeError as error:
        raise MissingStage(f"object {record.manifest} does not parse") from error
    if manifest.format != FORMAT:
        raise Unavailable(f"object {record.manifest} has format {manifest.format}, this release reads {FORMAT}")
    return manifest


async def read_staged(objects: ObjectStore, key: str, size: int, crc: int) -> bytes:
    """Read and verify an object of a committed epoch. Raises MissingStage, Unavailable."""
    try:
        body = (await objects.get(key)).body
    except ObjectNotFound as error:
        raise MissingStage(f"object {key} is missing") from error
    if len(body) != size or crc32c(body) != crc:
        raise MissingStage(
            f"object {key} has {len(body)} bytes with CRC {crc32c(body):#010x}, expected {size}, {crc:#010x}"
        )
    return body


class SinkView:
    """A view of all sinks, kept up to date while `run` is running."""

    def __init__(self, metadata: MetadataStore, namespace: str) -> None:
        self._metadata = metadata
        self._prefix = paths.sinks_prefix(namespace)
        self._by_key: dict[str, Sink] = {}
        self._pending: set[str] = set()
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Sink]:
        return iter(list(self._by_key.values()))

    def pending(self) -> list[Sink]:
        """Return the sinks whose epoch is not in all logs yet, oldest first."""
        return sorted((self._by_key[key] for key in self._pending), key=lambda record: record.committed_ms)

    def full(self, limit: int) -> str:
        """Return why no sink can be added to ``limit`` ones, or an empty string if it can."""
        return f"{len(self)} sinks exist, KAFSCALE_MAX_SINKS allows no more" if len(self) >= limit else ""

    def get(self, sink: str) -> Sink | None:
        return self._by_key.get(f"{self._prefix}{paths.sink_segment(sink)}")

    async def run(self) -> None:
        """Run until cancelled, retrying after every failure."""
        outage = Outage("watching sinks failed, retrying", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            try:
                await follow(self._metadata, self._prefix, reset=self._reset, apply=self._apply)
            except STORE_FAILURES as error:
                await outage.pause(error)

    async def changed(self) -> None:
        """Wait until any sink has changed."""
        await self._changed.wait()

    async def applied(self, sink: str, epoch: int) -> None:
        """Wait until all partitions have the sink's ``epoch``, which must be committed."""
        while True:
            record = self.get(sink)
            if record is not None and (record.epoch > epoch or (record.epoch == epoch and not record.remaining)):
                return
            await self.changed()

    def _reset(self, snapshot: Snapshot) -> None:
        self._by_key, self._pending = {}, set()
        self._take({item.key: item for item in snapshot.items})

    def _apply(self, events: tuple[Event, ...]) -> None:
        self._take({event.key: event.value for event in events})

    def _take(self, items: Mapping[str, KeyValue | None]) -> None:
        for key, item in items.items():
            self._by_key.pop(key, None)
            self._pending.discard(key)
            if item is not None:
                self._note(key, item)
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _note(self, key: str, item: KeyValue) -> None:
        try:
            record = parse_sink(item)
        except Unavailable as error:
            log.error("unreadable sink record", error=str(error))
            return
        # Only writers of the record need these, and they read it again.
        record.ClearField("discarded")
        self._by_key[key] = record
        if record.remaining:
            self._pending.add(key)
