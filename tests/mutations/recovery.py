"""Naive code for snapshots of the metadata, and for point-in-time copies of topics."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_POINT_IN_TIME = "tests/unit/recovery/test_point_in_time.py::"
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
            "services.storage.owning.takeover",
            "_rolled_back",
            "if is_earlier_topics(header.epoch, floor):",
            "if False:",
        ),
        _POINT_IN_TIME + "test_a_topic_created_after_a_killed_copy_has_no_records_of_it",
    ),
)
