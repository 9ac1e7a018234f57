"""Broken products that only one kind of fault or client exposes."""

from tests.sim.variant import Variant
from tests.support.change import Change

_CRASHES = {"crash": 3.0, "crash-at-point": 8.0}

WIDER_VARIANTS: dict[str, Variant] = {
    "stopped-by-a-foreign-key": Variant(
        "a listing ends at a key that is not a segment's",
        (
            Change(
                "services.storage.reading.finder",
                "SegmentFinder._list",
                "if key is None:\n                    continue",
                "if key is None:\n                    break",
            ),
        ),
        _CRASHES | {"foreign-object": 12.0},
        first_seed=6,
    ),
    "epoch-ends-with-the-log": Variant(
        "every leader epoch is reported to end at the end of the log",
        (
            Change(
                "services.storage.log.partition",
                "CommittedLog.end_of_epoch",
                "if i < len(self.epochs) and not unknown",
                "if False",
            ),
        ),
        _CRASHES,
    ),
    "topics-kept-as-first-seen": Variant(
        "a gateway keeps the partitions that a topic had at its first use",
        (
            Change(
                "services.gateway.topic_cache",
                "TopicCache._current",
                "if view.by_id.get(key) is known.info}",
                "if key in view.by_id}",
            ),
        ),
        {"partitions-added": 15.0},
    ),
    "unmarked-bucket-believed": Variant(
        "objects missing in a listing count as deleted, even in a bucket without the cluster mark",
        (
            Change(
                "services.storage.reading.old_end",
                "OldEnd._is_marked",
                "        except ObjectNotFound:\n            return False\n"
                "        return mark.body == cluster.cluster_id.encode()",
                "        except ObjectNotFound:\n            return True\n        return bool(mark and cluster)",
            ),
        ),
        _CRASHES | {"bucket-empty": 20.0},
        first_seed=14,
    ),
    "nothing-kept-by-size": Variant(
        "retention by size deletes everything it can",
        (Change("services.storage.upkeep.retention", "Retention._due", ".bytes - config.retention_bytes", ".bytes"),),
        first_seed=2,
    ),
    "plan-by-an-old-state": Variant(
        "a plan uses a state that was read before the request",
        (
            Change(
                "services.storage.owning.logs",
                "Logs.stored_log",
                "self._refreshed(copy, ref, copy.reads)",
                "self._refreshed(copy, ref, copy.reads - 1)",
            ),
        ),
    ),
    "unacknowledged-answered": Variant(
        "a request with acks=0 is answered",
        (Change("services.gateway.apis.produce", "_Produce._reply", "if self._acks != 0:", "if True:"),),
    ),
    "offsets-never-listed": Variant(
        "ListOffsets always refers the client to another broker",
        (Change("services.gateway.apis.list_offsets", "_ask", "if asked.question.results:", "if False:"),),
    ),
    "epoch-ends-never-told": Variant(
        "OffsetForLeaderEpoch always refers the client to another broker",
        (Change("services.gateway.apis.offset_for_leader_epoch", "_ask", "if not question.results:", "if True:"),),
    ),
    "deletion-never-answered": Variant(
        "DeleteRecords always refers the client to another broker",
        (Change("services.gateway.apis.delete_records", "_ask", "if not question.results:", "if True:"),),
    ),
    "several-topics-refused": Variant(
        "a request with records for several topics is always refused",
        (
            Change(
                "services.gateway.apis.produce",
                "_check",
                "            elif known is None:",
                "            elif known is None or len(request.topics) > 1:",
            ),
        ),
    ),
    "deeper-deleted-with-the-topic": Variant(
        "the deletion of a topic deletes another cluster's objects below a partition's prefix",
        (
            Change(
                "services.storage.upkeep.deletion",
                "_Deletion._empty",
                'for info in page if "/" not in info.key.removeprefix(prefix)]',
                "for info in page]",
            ),
        ),
        {"foreign-object": 12.0},
        first_seed=1,
    ),
    "deeper-deleted-with-the-log": Variant(
        "deletion below the log start deletes another cluster's objects below the partition's prefix",
        (
            Change(
                "services.storage.upkeep.retention",
                "Retention._delete_segments",
                "paths.parse_segment_key_in(prefix, info.key)",
                "paths.parse_segment_key(info.key)",
            ),
        ),
        {"foreign-object": 12.0},
        first_seed=1,
    ),
    "snapshots-left-behind": Variant(
        "the producer snapshots of a deleted topic stay",
        (
            Change(
                "services.storage.upkeep.deletion",
                "_Deletion._empty",
                "                paths.producers_prefix(self._namespace, self._topic.name, index),\n",
                "",
            ),
        ),
    ),
    "applied-stages-kept": Variant(
        "the stages of a sink stay after all logs have their records",
        (
            Change(
                "services.storage.sinks.appends",
                "SinkAppends._delete_applied",
                "await delete_staged(self._deps.objects, self._membership, [*keys, record.manifest])",
                "pass",
            ),
        ),
    ),
    "discarded-stages-kept": Variant(
        "stages that a sink discards stay",
        (
            Change(
                "services.storage.sinks.staging",
                "Stages.discard",
                "await self.delete(await self._revoke(sink, keys))",
                "await self._revoke(sink, keys)",
            ),
        ),
    ),
    "old-stages-kept": Variant(
        "abandoned stages of a sink stay forever",
        (
            Change(
                "services.storage.sinks.upkeep",
                "SinkUpkeep._collect",
                "await delete_staged(self._deps.objects, self._membership, unused)",
                "pass",
            ),
        ),
    ),
    "topics-never-deleted": Variant(
        "DeleteTopics is answered but deletes nothing",
        (
            Change(
                "services.gateway.apis.delete_topics",
                "_delete",
                "await delete_topic(environment, API.name, info, deadline)",
                "pass",
            ),
        ),
    ),
    "offline-for-good": Variant(
        "a partition that could not be read at its take-over is never read again",
        (
            Change(
                "services.storage.owning.offline",
                "OfflineRetries.begin",
                "self._nursery.start_soon(self._retry, partition)",
                "pass",
            ),
        ),
        {"crash": 3.0, "object-garbled": 60.0},
        first_seed=46,
    ),
    "header-believed": Variant(
        "the epoch of an object is trusted after one read of its header",
        (
            Change(
                "services.storage.reading.reader",
                "Reader.holding",
                "                await self._parsed(view, segment)\n            except",
                "                view.segments.forget(segment.base_offset)\n"
                "                raise OfAnotherEpoch(view.name)\n            except",
            ),
        ),
        {"crash": 3.0, "object-garbled": 60.0},
        first_seed=101,
        rare="tests/unit/storage/test_offline.py::test_a_misread_header_does_not_exclude_a_segment_from_the_log",
    ),
    "ages-by-a-clock-that-jumps": Variant(
        "retention by time uses a clock that is not checked",
        (
            Change(
                "services.storage.upkeep.retention",
                "Retention._due",
                "compared = await clock_was_right(*clock, at_ms=now_ms)",
                "compared = True",
            ),
        ),
        {"wall-clock-jump": 20.0},
        rare="tests/unit/storage/test_retention.py::test_the_stores_clock_is_checked_before_deleting_by_age",
    ),
    "producers-expired-by-a-clock-that-jumps": Variant(
        "idle producers expire by a clock that is not checked",
        (
            Change(
                "services.storage.owning.snapshots",
                "ProducerSnapshots.expire",
                "if not clocks_agree(self._objects.clock_skew_seconds):\n            return",
                "",
            ),
            Change(
                "services.storage.log.producer_clock",
                "ProducerClock.idle_until_ms",
                "min(self._now_ms(), self._undisturbed())",
                "self._now_ms()",
            ),
            Change(
                "services.storage.log.producer_clock",
                "ProducerClock.arrival_ms",
                "max(self._now_ms(), self._undisturbed())",
                "self._now_ms()",
            ),
        ),
        {"wall-clock-jump": 20.0},
        first_seed=20,
    ),
    "missing-objects-hold-up-the-log": Variant(
        "the log start does not move over objects that were deleted externally",
        (
            Change(
                "services.storage.upkeep.retention",
                "Retention._move_over_missing",
                'await self._move_to(partition, start, "older objects are missing")',
                "assert start >= 0",
            ),
        ),
        {"oldest-object-deleted": 20.0},
        first_seed=7,
    ),
}
