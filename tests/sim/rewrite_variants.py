"""Deliberately broken products whose logs are merged and compacted, which the simulation must detect."""

from dataclasses import replace

from tests.sim.variant import Variant
from tests.sim.world import REWRITES_TROUBLED_SECONDS
from tests.support.change import Change

_CRASHES = {"crash": 3.0, "crash-at-point": 8.0}
_COMPACTION = "tests/unit/storage/test_compaction.py::"

_VARIANTS: dict[str, Variant] = {
    "replaced-deleted-at-once": Variant(
        "what a root replaces is deleted without the grace",
        (Change("services.storage.rewriting.roots", "Roots._past_grace", "known_at < latest", "True"),),
        {"object-slow": 5.0},
        # Readers begin again with the next root.
        rare=_COMPACTION + "test_replaced_objects_are_deleted_after_the_grace_and_once",
    ),
    "root-without-revision-compare": Variant(
        "a state with the next root is written without comparing its revision",
        (
            Change(
                "services.storage.writing.committer",
                "Committer._commit",
                "[Unchanged(self._key(entry), entry.compare) for entry in entries],",
                "[\n"
                "                        Unchanged(self._key(entry), entry.compare)\n"
                "                        for entry in entries\n"
                "                        if entry.partition.next_root is None\n"
                "                    ],",
            ),
        ),
        {"commit-late": 20.0, "metadata-lost-answer": 3.0},
        first_seed=26,
    ),
    "object-keys-without-attempt": Variant(
        "two attempts of an owner have the same keys, and what is there is taken for one's own",
        (
            Change("kafscale.rewritten.keys", "RewrittenKey.__str__", "-{self.attempt}", "-1"),
            Change("services.indexer.rewriting.rewrites", "_Call._put", "if there is not None:", "if False:"),
            Change(
                "services.indexer.rewriting.passes",
                "_Step._store",
                'parse_object(built.entry, read_back or b"", check_batches=True)',
                "pass",
            ),
        ),
        {"rewrite-broken": 6.0, "rewrite-goes-on": 3.0},
    ),
    "result-of-an-earlier-epoch": Variant(
        "a rewrite is not cancelled by a hand-over, and a later epoch of the owner commits its result",
        (
            Change("services.storage.log.partition", "Partition.stop_rewriting", "self.rewriting.cancel()", "pass"),
            Change(
                "services.storage.rewriting.rewrites",
                "Rewrites._rewrite",
                "await self._roots.commit(partition, step,",
                "await self._roots.commit(self._owned.get(partition.key) or partition, step,",
            ),
        ),
        {
            "come-and-go": 20.0,
            "rewrite-slow": 8.0,
            # The run that continues must survive.
            **dict.fromkeys(("crash", "pause", "leave", "ping-pong", "lease-lost", "metadata-down"), 0.0),
            **dict.fromkeys(
                ("crash-at-point", "crash-after-put", "pause-at-point", "pause-before-put", "pause-after-put"), 0.0
            ),
        },
        first_seed=44,
    ),
    "swept-by-name": Variant(
        "a sweep during a rewrite deletes whatever the state's root does not name",
        (
            Change(
                "services.storage.rewriting.roots",
                "Roots.commit",
                "data = build_root(root)",
                "data = build_root(root)\n"
                "        partition.unswept = True\n"
                "        await self._obsolete.sweep(partition)",
            ),
            Change(
                "services.storage.rewriting.obsolete",
                "Obsolete.sweep",
                "if key.epoch < partition.epoch or (key.epoch == partition.epoch and key.attempt in ended):",
                "if True:",
            ),
        ),
        _CRASHES,
    ),
    "rewritten-while-a-root-waits": Variant(
        "a log is checked again while the commit of its root is under way",
        (
            Change(
                "services.storage.rewriting.roots", "Roots.commit", "if partition.next_root is not None:", "if False:"
            ),
            Change(
                "services.storage.rewriting.rewrites",
                "Rewrites.run",
                "partition.rewriting is not None or partition.next_root is not None",
                "partition.rewriting is not None",
            ),
        ),
        {"metadata-full": 20.0, "rewrite-slow": 8.0},
        # After a rewrite that took too long, a pause hides it in almost all seeds.
        rare="tests/unit/storage/test_slow_roots.py::test_a_root_is_waited_for_before_the_log_is_rewritten_again",
    ),
    "log-starts-with-the-segments": Variant(
        "the log start moves to the oldest segment, over objects that the root names",
        (
            Change(
                "services.storage.reading.old_end",
                "OldEnd._oldest_remaining",
                " or view.log_start < view.segments.through",
                "",
            ),
        ),
        {"object-garbled": 10.0},
    ),
    "parts-cached-by-base": Variant(
        "a rewritten object has the place in the caches of the one that it replaces",
        (
            Change(
                "services.storage.reading.rewritten",
                "RewrittenObjects.id",
                "entry.epoch, entry.attempt)",
                "0, 0)",
            ),
        ),
        {"reader-restarts": 5.0},
    ),
    "damage-taken-for-a-hole": Variant(
        "a scan passes over a rewritten object that cannot be read, as if all its records had been removed",
        (
            Change(
                "services.storage.reading.pieces",
                "read_pieces",
                "cached = cached or await reader.part(view, segment, start)",
                "try:\n"
                "            cached = cached or await reader.part(view, segment, start)\n"
                "        except Exception:\n"
                "            return [Piece(start, segment.rewritten.next_offset)]",
            ),
        ),
        {"bucket-empty": 100.0},
        first_seed=26,
    ),
    "parts-believed": Variant(
        "a part of a rewritten object is believed without the checksum in the index",
        (
            Change(
                "services.storage.reading.rewritten",
                "RewrittenObjects._read",
                "index.verify(data, first, end)",
                "pass",
            ),
        ),
        {"object-garbled": 25.0, "reader-restarts": 10.0},
    ),
    "replaced-segment-passed-over": Variant(
        "after a segment that was replaced meanwhile, a read continues behind the object that replaced it",
        (
            Change(
                "services.storage.reading.reader",
                "Reader._following",
                "if segment.base_offset >= view.segments.through:",
                "if True:",
            ),
            Change(
                "services.storage.log.rewritten",
                "RewrittenLog.after",
                "found.rewritten == segment.rewritten",
                "found.rewritten",
            ),
        ),
        {"object-slow-answer": 10.0, "reader-restarts": 10.0},
        rare="tests/unit/storage/test_rewritten_reads.py::test_a_read_goes_on_where_the_log_was_rewritten_meanwhile",
    ),
    "producers-forgotten-by-compaction": Variant(
        "a compacted log lacks the last batches of its producers, which a new owner must read",
        (
            Change(
                "services.storage.rewriting.rewrites", "Rewrites._compact", "await self._cover(partition, end)", "pass"
            ),
            Change(
                "services.storage.rewriting.rewrites",
                "Rewrites._compact",
                "partition.committed_producers.last_batches()",
                "()",
            ),
        ),
        _CRASHES,
        # Most producers have records in the part that is not compacted.
        rare=_COMPACTION + "test_a_producer_is_known_although_its_records_are_gone",
    ),
    "retention-although-only-compacted": Variant(
        "with cleanup.policy=compact, retention moves the log start",
        (
            Change(
                "kafscale.topics.configs",
                "TopicConfig.of",
                'int(value("retention.ms")) if deletes else -1',
                'int(value("retention.ms"))',
            ),
        ),
    ),
    "tombstones-without-grace": Variant(
        "a tombstone is removed by the next pass",
        (
            Change(
                "services.storage.rewriting.rewrites",
                "Rewrites._compact",
                "horizon_ms=now_ms + kept_ms",
                "horizon_ms=now_ms",
            ),
        ),
    ),
    "aged-by-a-wrong-clock": Variant(
        "the delete horizon of tombstones is set by a clock that is wrong",
        (
            Change(
                "services.storage.rewriting.rewrites",
                "Rewrites._compact",
                "if not await clock_was_right(self._objects, self._namespace, self._now_ms, at_ms=now_ms):",
                "if False:",
            ),
        ),
        {"wall-clock-jump": 15.0},
        rare=_COMPACTION + "test_nothing_is_compacted_while_the_clock_is_wrong",
    ),
    "last-segment-compacted": Variant(
        "the last segment of a log is rewritten",
        (
            Change(
                "services.storage.rewriting.rewrites",
                "_limit",
                'return state.last_segment.base_offset if state.HasField("last_segment") else 0',
                "return state.high_watermark",
            ),
        ),
    ),
    "first-value-kept": Variant(
        "compaction keeps the first record of each key",
        (
            Change(
                "kafscale.compaction.key_map",
                "KeyMap.put",
                "self._offsets[slot] = offset",
                "self._offsets[slot] = offset if self._offsets[slot] == _FREE else self._offsets[slot]",
            ),
            Change("kafscale.compaction.cleaning", "Cleaner._survivors", ">= last_offset", "<= last_offset"),
        ),
    ),
}

REWRITE_VARIANTS = {
    name: replace(variant, intake=True, rewrites=True, troubled_seconds=REWRITES_TROUBLED_SECONDS)
    for name, variant in _VARIANTS.items()
}
