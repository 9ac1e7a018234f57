"""Naive code for snapshots of the metadata, and for topics as they were."""

from tests.mutations.mutation import Mutation

_COPIES = "tests/unit/recovery/test_point_in_time.py::"
_MODULE = "services/recovery/claim.py"

MUTATIONS = (
    Mutation(
        (),
        "services/recovery/backups.py",
        "except CorruptBackup as error:\n                listed.append",
        "except NoBackup as error:\n                listed.append",
        "tests/unit/cli/test_recovery.py::test_a_damaged_snapshot_does_not_hide_the_others",
        "one damaged snapshot hides no other",
    ),
    Mutation(
        (),
        "services/recovery/cut.py",
        "until_ms + 1",
        "until_ms",
        _COPIES + "test_each_partition_ends_before_its_first_later_record",
        "records of the very time are there",
    ),
    Mutation(
        (),
        _MODULE,
        "before.lifted_to(epoch).value()",
        "before.value()",
        _COPIES + "test_a_topic_that_somebody_makes_after_a_killed_copy_has_nothing_of_it",
        "no later topic has the epoch of a copy that was given up",
    ),
    Mutation(
        (),
        _MODULE,
        "[Unchanged(self._topic_key, 0), self._held]",
        "[Unchanged(self._topic_key, 0)]",
        _COPIES + "test_a_topic_that_is_made_meanwhile_loses_nothing_to_a_copy",
        "no topic is made of objects that were deleted meanwhile",
    ),
    Mutation(
        (),
        _MODULE,
        "producers_from=log.end,",
        "producers_from=log.start,",
        _COPIES + "test_producers_of_the_old_topic_and_new_ones_write_to_the_new",
        "a producer of the old topic begins anew in the copy",
    ),
    Mutation(
        (),
        "services/storage/takeover.py",
        "if is_earlier_topics(header.epoch, floor):",
        "if False:",
        _COPIES + "test_a_topic_that_somebody_makes_after_a_killed_copy_has_nothing_of_it",
        "what is left of an earlier topic is no sign of metadata that was rolled back",
    ),
)
