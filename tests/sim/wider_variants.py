"""Broken products that only one kind of fault, or one kind of client, gives away."""

from tests.sim.variant import Variant
from tests.support.change import Change

_CRASHES = {"crash": 3.0, "crash-at-point": 8.0}

WIDER_VARIANTS: dict[str, Variant] = {
    "stopped-by-a-foreign-key": Variant(
        "a listing ends at a key that is no segment's",
        (
            Change(
                "services.storage.reading.finder",
                "SegmentFinder._list",
                "if key is None:\n                    continue",
                "if key is None:\n                    break",
            ),
        ),
        _CRASHES | {"foreign-object": 12.0},
        first_seed=5,
    ),
    "epoch-ends-with-the-log": Variant(
        "every leader epoch is told to end where the log does",
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
        "a gateway keeps the partitions that a topic had when it first needed them",
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
        "objects that a listing does not show are gone, whatever bucket answers",
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
        first_seed=3,
    ),
    "nothing-kept-by-size": Variant(
        "retention by size deletes everything that it can",
        (Change("services.storage.upkeep.retention", "Retention._due", ".bytes - config.retention_bytes", ".bytes"),),
    ),
    "plan-by-an-old-state": Variant(
        "a plan goes by a state that was read before the plan was asked for",
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
        "ListOffsets is answered that the client has to ask another one, for good",
        (Change("services.gateway.apis.list_offsets", "_ask", "if asked.question.results:", "if False:"),),
    ),
    "epoch-ends-never-told": Variant(
        "OffsetForLeaderEpoch is answered that the client has to ask another one, for good",
        (Change("services.gateway.apis.offset_for_leader_epoch", "_ask", "if not question.results:", "if True:"),),
    ),
    "deletion-never-answered": Variant(
        "DeleteRecords is answered that the client has to ask another one, for good",
        (Change("services.gateway.apis.delete_records", "_ask", "if not question.results:", "if True:"),),
    ),
    "several-topics-refused": Variant(
        "a request with records for several topics is refused, for good",
        (
            Change(
                "services.gateway.apis.produce",
                "_check",
                "            if known is None:",
                "            if known is None or len(request.topics) > 1:",
            ),
        ),
    ),
    "deeper-deleted-with-the-topic": Variant(
        "the deletion of a topic takes what another cluster keeps below a partition's prefix",
        (
            Change(
                "services.storage.upkeep.deletion",
                "_Deletion._empty",
                'for info in page if "/" not in info.key.removeprefix(prefix)]',
                "for info in page]",
            ),
        ),
        {"foreign-object": 12.0},
    ),
    "deeper-deleted-with-the-log": Variant(
        "what lies below the log start is deleted with what another cluster keeps deeper",
        (
            Change(
                "services.storage.upkeep.retention",
                "Retention._delete_below",
                "paths.parse_segment_key_in(prefix, info.key)",
                "paths.parse_segment_key(info.key)",
            ),
        ),
        {"foreign-object": 12.0},
    ),
    "snapshots-left-behind": Variant(
        "a deleted topic's producer snapshots stay",
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
        "what a sink staged stays when all logs have it",
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
        "what a sink takes back stays",
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
        "what a sink staged and left behind stays for ever",
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
        "DeleteTopics is answered, and nothing is done",
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
        "a partition that could not be read when it was taken over is not looked at again",
        (
            Change(
                "services.storage.owning.offline",
                "OfflineRetries.begin",
                "self._nursery.start_soon(self._retry, partition)",
                "pass",
            ),
        ),
        {"crash": 3.0, "object-garbled": 60.0},
        first_seed=6,
    ),
    "header-believed": Variant(
        "a header that was read once says which epoch an object is of",
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
    ),
    "ages-by-a-clock-that-jumps": Variant(
        "retention by time asks nobody whether its clock is right",
        (
            Change(
                "services.storage.upkeep.retention",
                "Retention._due",
                "compared or await self._clock_is_right(now_ms)",
                "compared or True",
            ),
        ),
        {"wall-clock-jump": 20.0},
        first_seed=8,
    ),
    "producers-expired-by-a-clock-that-jumps": Variant(
        "idle producers are forgotten by a clock that nothing proves",
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
        first_seed=17,
    ),
    "missing-objects-hold-up-the-log": Variant(
        "the log start does not move over objects that somebody has deleted",
        (
            Change(
                "services.storage.upkeep.retention",
                "Retention._move_over_missing",
                'await self._move_to(partition, start, "older objects are missing")',
                "assert start >= 0",
            ),
        ),
        {"oldest-object-deleted": 20.0},
    ),
}
