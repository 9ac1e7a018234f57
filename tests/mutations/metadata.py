"""Naive services that trust any metadata, or let it grow with the number of commits."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_COMMITS_ON_ETCD = "tests/contract/storage/test_commits_on_etcd.py::"
_IDEMPOTENCE = "tests/unit/storage/test_idempotence.py::"
_WRONG_METADATA = "tests/unit/storage/test_wrong_metadata.py::"

MUTATIONS = (
    Mutation(
        "a restart reads the whole log",
        Change(
            "services.storage.owning.snapshots",
            "restore",
            "max(state.producers_from, state.log_start)",
            "state.log_start",
        ),
        _IDEMPOTENCE + "test_a_restart_reads_no_segments_without_idempotent_producers",
    ),
    Mutation(
        "every commit has its own key",
        Change(
            "services.storage.writing.committer",
            "Committer._commit",
            "[Put(self._key(entry), entry.value) for entry in entries],",
            (
                "[Put(self._key(entry), entry.value) for entry in entries]\n"
                '                    + [Put(f"{self._key(entry)}/{entry.state.high_watermark}", b"") for '
                "entry in entries],"
            ),
        ),
        _COMMITS_ON_ETCD + "test_commits_add_no_keys_to_etcd_and_their_history_is_compacted",
    ),
    Mutation(
        "the history in etcd is never compacted",
        Change("kafscale.process.startup", "open_metadata", "        nursery.start_soon(upkeep.run)\n", ""),
        _COMMITS_ON_ETCD + "test_commits_add_no_keys_to_etcd_and_their_history_is_compacted",
        slow=True,
    ),
    Mutation(
        "the bucket is used without a check of its owner",
        Change("services.storage.owning.cluster_mark", "_mark", "if there != cluster_id:", "if False:"),
        _WRONG_METADATA + "test_another_clusters_metadata_deletes_nothing",
    ),
    Mutation(
        "objects above the end at a take-over belong to nobody",
        Change(
            "services.storage.upkeep.retention",
            "Retention._delete_orphans",
            "        doomed = []\n",
            "        doomed = [str(key) for key in partition.leftovers]\n",
        ),
        _WRONG_METADATA + "test_objects_above_the_end_stay_while_no_commit_is_answered",
    ),
    Mutation(
        "older metadata is detected only by its epoch",
        Change("services.storage.owning.stored", "_rolled_back", "if chained > MOST_FLUSHES_IN_FLIGHT:", "if False:"),
        _WRONG_METADATA + "test_metadata_of_the_same_epoch_with_an_older_end_puts_the_partition_offline",
    ),
    Mutation(
        "older metadata is detected only by the number of missing objects",
        Change(
            "services.storage.owning.stored",
            "_rolled_back",
            "if header.epoch > settled_epoch or header.epoch >= state.epoch:",
            "if False:",
        ),
        _WRONG_METADATA + "test_metadata_of_an_older_epoch_puts_the_partition_offline",
    ),
    Mutation(
        "older metadata is detected only by the number of missing objects",
        Change("services.storage.owning.stored", "_rolled_back", "header.epoch > settled_epoch or ", ""),
        _WRONG_METADATA + "test_a_partition_with_older_metadata_stays_offline_after_every_take_over",
    ),
)
