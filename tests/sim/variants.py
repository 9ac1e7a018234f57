"""Deliberately broken products, which the simulation must detect."""

from tests.sim.group_variants import GROUP_VARIANTS
from tests.sim.intake_variants import INTAKE_VARIANTS
from tests.sim.rewrite_variants import REWRITE_VARIANTS
from tests.sim.variant import Variant
from tests.sim.wider_variants import WIDER_VARIANTS
from tests.support.change import Change

_CRASHES = {"crash": 3.0, "crash-at-point": 8.0}

VARIANTS: dict[str, Variant] = {
    "sink-done-when-buffered": Variant(
        "a sink's progress counts an epoch as applied when it is only in the write buffer",
        (
            Change(
                "services.storage.sinks.appends",
                "SinkAppends._append_all",
                "if await self._durable(partition, epoch, total):",
                "if total:",
            ),
        ),
        _CRASHES,
        first_seed=1,
    ),
    "sink-appended-again": Variant(
        "a new owner appends an epoch without a check of how much the log already has",
        (
            Change(
                "services.storage.log.sink_progress",
                "SinkPositions.position",
                "return max(committed_batches(state, epoch), self._appended.get(epoch, 0))",
                "return self._appended.get(epoch, 0)",
            ),
        ),
        _CRASHES,
        first_seed=12,
    ),
    "ack-before-commit": Variant(
        "acks=all is answered when the records are only in the owner's buffer",
        (
            Change(
                "services.gateway.owners.appends",
                "AppendStream.replied",
                "not append.unacknowledged or (append.acks and result.durable_soon)",
                "False",
            ),
        ),
        _CRASHES,
    ),
    "plain-put": Variant(
        "objects are written even if the key exists",
        (
            Change(
                "kafscale.objects.memory",
                "MemoryObjectStore.put_if_absent",
                "if key in self._objects:",
                "if False:",
            ),
        ),
        {"pause-before-put": 20.0},
        first_seed=79,
    ),
    "no-revision-compare": Variant(
        "commits do not compare the state's revision",
        (
            Change(
                "services.storage.writing.committer",
                "Committer._commit",
                "[Unchanged(self._key(entry), entry.compare) for entry in entries],",
                "[],",
            ),
        ),
        {"pause-at-point": 6.0, "pause-after-put": 10.0, "ping-pong": 3.0},
        first_seed=47,
    ),
    "watermark-before-put": Variant(
        "the high watermark advances before the segment is stored",
        (
            Change(
                "services.storage.writing.flusher",
                "Flusher._store",
                "                await self._put(partition, segment)\n",
                "                buffer.segment = segment\n"
                "                self._stored(partition)\n"
                "                await self._put(partition, segment)\n",
            ),
        ),
        _CRASHES | {"object-slow": 3.0},
        first_seed=1,
    ),
    "sequences-not-recovered": Variant(
        "a new owner does not recover the sequences of idempotent producers",
        (
            Change(
                "services.storage.owning.owned",
                "OwnedPartitions._restore_producers",
                "await self._restore(partition.log, partition.state)",
                "Restored(type(partition.producers)(1000), 0, 0)",
            ),
        ),
        _CRASHES,
        first_seed=1,
    ),
    "no-epoch-test-on-read": Variant(
        "an object at a base below the high watermark is assumed to belong to the log",
        (
            Change("services.storage.reading.reader", "Reader.holding", "if header.epoch == key.epoch:", "if True:"),
            Change(
                "services.storage.reading.reader",
                "Reader._parsed",
                "if parsed.header.epoch != view.epoch_of(segment.base_offset):",
                "if False:",
            ),
            Change(
                "services.storage.reading.reader",
                "Reader._scan",
                "at_end=at_end, epoch=epoch)",
                "at_end=at_end)",
            ),
        ),
        {"cut-from-metadata": 12.0, "metadata-down": 4.0, "crash": 2.0},
        first_seed=2,
    ),
    "offsets-reused": Variant(
        "a commit without an answer counts as failed, and its offsets are used again in the same epoch",
        (
            Change(
                "services.storage.writing.committer",
                "Committer._commit",
                "await outage.pause(error, partitions=len(entries))",
                "for entry in entries:\n"
                "                    end, buffer = entry.partition.log.high_watermark, entry.partition.buffer\n"
                "                    buffer._open = Buffer(end, end)\n"
                "                    buffer._sealed.clear()\n"
                "                return",
            ),
        ),
        {"commit-late": 4.0, "metadata-lost-answer": 3.0},
        first_seed=1,
    ),
    "delete-to-set-aside": Variant(
        "a dead owner's object is deleted before ours is written",
        (
            Change(
                "services.storage.writing.flusher",
                "Flusher._replace",
                "await self._objects.replace_if_match(key, data, there.etag)",
                "await self._objects.delete_many([key]); await self._objects.put_if_absent(key, data)",
            ),
        ),
        {"delete-late": 12.0, "crash-after-put": 12.0},
        first_seed=7,
    ),
    "cache-filled-at-put": Variant(
        "a segment enters the cache before its commit, keyed by its base alone",
        (
            Change(
                "services.storage.run",
                "Run.__init__",
                "stored=self._committer.ready,",
                "stored=lambda partition: (\n"
                "                [\n"
                "                    self.reader.segments.put(\n"
                "                        SegmentId(partition.topic.id, partition.ref.partition, s.base_offset, 0),\n"
                "                        CachedSegment(s.data, s.offsets, s.positions, s.next_offset, "
                "s.max_timestamp_ms),\n"
                "                    )\n"
                "                    for s in [buffer.segment for buffer in partition.buffer.stored()]\n"
                "                ],\n"
                "                self._committer.ready(partition),\n"
                "            ),\n",
            ),
            Change(
                "services.storage.reading.reader",
                "Reader._id",
                "segment.base_offset, view.epoch_of(segment.base_offset))",
                "segment.base_offset, 0)",
            ),
            Change(
                "services.storage.reading.reader",
                "Reader.holding",
                "if header.epoch == key.epoch:",
                "if header.epoch == view.epoch_of(segment.base_offset):",
            ),
        ),
        {
            "come-and-go": 20.0,
            "commit-late": 15.0,
            "reader-restarts": 10.0,
            # The run that has the segment in its cache must survive.
            **dict.fromkeys(("crash", "pause", "leave", "ping-pong", "lease-lost", "metadata-down"), 0.0),
            **dict.fromkeys(
                ("crash-at-point", "crash-after-put", "pause-at-point", "pause-before-put", "pause-after-put"), 0.0
            ),
        },
        troubled_seconds=12.0,
        rare="tests/unit/storage/test_read_path.py::test_uncommitted_segments_do_not_enter_the_cache",
    ),
    "duplicate-acked-early": Variant(
        "a duplicate batch is acked although the original is only buffered",
        (
            Change(
                "services.storage.log.placing",
                "place",
                "original.last_offset + 1, -1",
                "0, -1",
            ),
        ),
        _CRASHES | {"connection-lost": 6.0, "call-lost-answer": 4.0, "object-slow": 3.0},
        first_seed=49,
    ),
    "log-start-passes-the-snapshot": Variant(
        "the log start moves over batches that alone hold the state of their producers",
        (
            Change(
                "services.storage.run",
                "Run._move_log_start",
                "await self.snapshots.cover(partition, offset)",
                "pass",
            ),
        ),
        _CRASHES | {"records-deleted": 8.0},
        first_seed=58,
        rare="tests/unit/storage/test_truncated_producers.py::test_the_log_start_waits_for_the_producer_snapshot",
    ),
    "silent-stream-kept": Variant(
        "a gateway keeps waiting for a silent commit stream",
        (
            Change(
                "services.gateway.owners.link",
                "StorageLink._follow",
                "with trio.move_on_after(self._silence) as silence:",
                "with trio.move_on_after(1000.0) as silence:",
            ),
        ),
        {"gateway-cut-from-peers": 8.0, "stream-silent": 0.0, "cut-from-peers": 0.0, "gateway-crash": 0.0},
        first_seed=7,
    ),
    "epochs-restart": Variant(
        "a topic starts with the epochs that a deleted topic of its name had",
        (
            Change(
                "services.storage.upkeep.deletion",
                "TopicDeleter._delete",
                "topic.name, topic.id, highest, deleter",
                "topic.name, topic.id, 0, deleter",
            ),
        ),
        {"put-very-late": 15.0, "topic-deleted": 8.0},
        rare="tests/unit/storage/test_deletion.py::test_a_recreated_topic_begins_above_all_epochs_of_the_deleted_one",
    ),
}

VARIANTS |= GROUP_VARIANTS | WIDER_VARIANTS | INTAKE_VARIANTS | REWRITE_VARIANTS
