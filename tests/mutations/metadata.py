"""Naive services that take any metadata for theirs and for new, or let it grow with the number of commits."""

from tests.mutations.mutation import Mutation

_WRONG = "tests/unit/storage/test_wrong_metadata.py::"
_IDEMPOTENCE = "tests/unit/storage/test_idempotence.py::"
_ETCD = "tests/unit/storage/test_commits_on_etcd.py::"

MUTATIONS = (
    # A restart reads the whole log.
    Mutation(
        (14,),
        "services/storage/snapshots.py",
        "max(state.producers_from, state.log_start)",
        "state.log_start",
        _IDEMPOTENCE + "test_pitfall_14_a_restart_reads_nothing_of_a_log_without_idempotent_producers",
    ),
    # Every commit has a key of its own.
    Mutation(
        (17,),
        "services/storage/committer.py",
        "[Put(self._key(entry), entry.value) for entry in entries],",
        "[Put(self._key(entry), entry.value) for entry in entries]\n"
        '                    + [Put(f"{self._key(entry)}/{entry.state.committed_end}", b"") for entry in entries],',
        _ETCD + "test_pitfall_17_commits_add_no_keys_to_etcd_and_their_history_goes",
    ),
    # Nobody asks etcd to forget.
    Mutation(
        (17,),
        "kafscale/service/cluster.py",
        "        nursery.start_soon(upkeep.run)\n",
        "",
        _ETCD + "test_pitfall_17_commits_add_no_keys_to_etcd_and_their_history_goes",
    ),
    # The bucket is anybody's.
    Mutation(
        (55,),
        "services/storage/cluster_mark.py",
        "if there != cluster_id:",
        "if False:",
        _WRONG + "test_pitfall_55_another_clusters_metadata_deletes_nothing",
    ),
    # What was above the end when the owner began is nobody's.
    Mutation(
        (55,),
        "services/storage/retention.py",
        "        doomed = []\n",
        "        doomed = [str(key) for key in partition.leftovers]\n",
        _WRONG + "test_pitfall_55_what_lies_above_the_end_stays_while_no_commit_is_answered",
    ),
    # Older metadata is told by its epoch alone.
    Mutation(
        (56,),
        "services/storage/takeover.py",
        "if chained > MOST_FLUSHES_IN_FLIGHT:",
        "if False:",
        _WRONG + "test_pitfall_56_metadata_of_the_same_epoch_with_an_older_end_puts_the_partition_offline",
    ),
    # Older metadata is told by how much it lacks alone.
    Mutation(
        (56,),
        "services/storage/takeover.py",
        "if header.epoch > settled_epoch or header.epoch >= state.epoch:",
        "if False:",
        _WRONG + "test_pitfall_56_metadata_of_an_older_epoch_puts_the_partition_offline",
    ),
    # The take-over that finds it out raises the epoch itself.
    Mutation(
        (56,),
        "services/storage/takeover.py",
        "header.epoch > settled_epoch or ",
        "",
        _WRONG + "test_pitfall_56_older_metadata_stays_offline_however_often_it_is_taken_over",
    ),
)
