"""Naive code for snapshots of the metadata, restores, and point-in-time copies of topics."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_POINT_IN_TIME = "tests/unit/recovery/test_point_in_time.py::"
_REWRITTEN = "tests/unit/recovery/test_restore_rewritten.py::"
_RECOVERY = "tests/unit/cli/test_recovery.py::"

MUTATIONS = (
    Mutation(
        "one damaged snapshot hides no other",
        Change(
            "kafscale_tools.recovery.backups",
            "read_manifests",
            "except CorruptBackup as error:\n                listed.append",
            "except NoBackup as error:\n                listed.append",
        ),
        _RECOVERY + "test_a_damaged_snapshot_does_not_hide_the_others",
    ),
    Mutation(
        "records at exactly the requested time are included",
        Change("kafscale_tools.recovery.cut", "kept_until", "until_ms + 1", "until_ms"),
        _POINT_IN_TIME + "test_each_partition_ends_before_its_first_later_record",
    ),
    Mutation(
        "no later topic has the epoch of an abandoned copy",
        Change("kafscale_tools.recovery.claim", "Claim.take", "before.lifted_to(epoch).value()", "before.value()"),
        _POINT_IN_TIME + "test_a_topic_created_after_a_killed_copy_has_no_records_of_it",
    ),
    Mutation(
        "no topic is created from objects that were deleted meanwhile",
        Change(
            "kafscale_tools.recovery.claim",
            "Claim._change",
            "[Unchanged(self._topic_key, 0), self._held]",
            "[Unchanged(self._topic_key, 0)]",
        ),
        _POINT_IN_TIME + "test_a_topic_created_meanwhile_loses_nothing_to_a_copy",
    ),
    Mutation(
        "a producer of the old topic starts afresh in the copy",
        Change(
            "kafscale_tools.recovery.claim", "Claim._states", "producers_from=log.end,", "producers_from=log.start,"
        ),
        _POINT_IN_TIME + "test_producers_of_the_old_topic_and_new_ones_can_write_to_the_new_topic",
    ),
    Mutation(
        "leftovers of an earlier topic are no sign of older metadata",
        Change(
            "services.storage.owning.stored",
            "_rolled_back",
            "if is_earlier_topics(header.epoch, floor):",
            "if False:",
        ),
        _POINT_IN_TIME + "test_a_topic_created_after_a_killed_copy_has_no_records_of_it",
    ),
    Mutation(
        "a newer root says where the log begins",
        Change(
            "kafscale_tools.recovery.rebuild",
            "_log",
            "least = max([least, *(found.root.start for found in ours.roots)])",
            "pass",
        ),
        _REWRITTEN + "test_retention_is_not_undone_by_older_roots",
    ),
    Mutation(
        "no root that is passed over has a number two above the restored one",
        Change(
            "kafscale_tools.recovery.rebuild",
            "_log",
            "part.key is None or part.root.number + 1 < ours.highest_number",
            "part.key is None",
        ),
        _REWRITTEN + "test_an_owner_accepts_a_log_whose_newer_roots_were_passed_over",
    ),
    Mutation(
        "no epoch of a sink is repeated into what was compacted since",
        Change(
            "kafscale_tools.recovery.sinks",
            "_reached",
            "and _compacted_since(log, since)",
            "and False",
        ),
        _REWRITTEN + "test_no_epoch_of_a_sink_is_repeated_into_a_rewritten_log",
    ),
    Mutation(
        "a copy ends with a record",
        Change(
            "kafscale_tools.recovery.point_in_time",
            "PointInTime._copy_rewritten",
            "replace(part, end=part.batches_end)",
            "part",
        ),
        "tests/unit/recovery/test_point_in_time_rewritten.py::test_a_rewritten_log_is_cut_at_the_first_later_record",
    ),
)
