"""Naive object and metadata stores, and a naive start."""

from tests.mutations.mutation import Mutation

_LOCAL = "tests/contract/objects/test_local.py::"
_RETRY = "tests/unit/objects/test_retry.py::"
_STORES = "tests/unit/service/test_stores.py::"
_SETTINGS = "tests/unit/service/test_settings.py::"
_SQLITE = "tests/unit/metadata/test_sqlite.py::"
_TOPICS = "tests/unit/metadata/test_topics.py::"

MUTATIONS = (
    # A value that cannot be read falls back to the default.
    Mutation(
        (10,),
        "kafscale/service/settings.py",
        "    if wrong:\n",
        "    if False:\n",
        _SETTINGS + "test_pitfall_10_a_bad_setting_stops_the_start_and_names_itself",
    ),
    # Without S3 objects are kept in memory.
    Mutation(
        (10,),
        "kafscale/service/stores.py",
        "await store.probe(settings.namespace, patience=patience)",
        "try:\n"
        "                await store.probe(settings.namespace, patience=patience)\n"
        "            except Exception:\n"
        "                from kafscale.objects.memory import MemoryObjectStore\n\n"
        "                yield MemoryObjectStore()\n"
        "                return",
        _STORES + "test_pitfall_10_s3_that_is_not_there_stops_the_start",
    ),
    # Half of the settings for S3 mean the local directory.
    Mutation(
        (10,),
        "kafscale/service/stores.py",
        "elif settings.endpoint:",
        "elif False:",
        _STORES + "test_pitfall_10_half_of_the_settings_for_s3_stop_the_start",
    ),
    # A name is free while its deletion is still under way.
    Mutation(
        (12,),
        "kafscale/metadata/topics.py",
        "while name in self._view.by_name:",
        "while self._view.live(name) is not None:",
        _TOPICS + "test_pitfall_12_a_name_is_not_free_until_its_deletion_is_finished",
    ),
    # No fsync of a file, of the directory that names it, of a transaction.
    Mutation(
        (18,),
        "kafscale/objects/files.py",
        "        os.fsync(descriptor)\n        return",
        "        return",
        _LOCAL + "test_pitfall_18_a_put_returns_after_file_and_directories_are_on_disk",
    ),
    Mutation(
        (18,),
        "kafscale/objects/files.py",
        "    try:\n        os.fsync(descriptor)\n",
        "    try:\n        pass\n",
        _LOCAL + "test_pitfall_18_a_replace_returns_after_file_and_directory_are_on_disk",
    ),
    Mutation(
        (18,),
        "kafscale/metadata/sqlite.py",
        '"synchronous=FULL")',
        '"synchronous=OFF")',
        _SQLITE + "test_pitfall_18_a_commit_is_on_the_disk_when_it_is_answered",
    ),
    # A repeated put that meets its own first try has failed.
    Mutation(
        (19,),
        "kafscale/objects/retry.py",
        "return await self._own_etag(key, body, refusal)",
        "raise",
        _RETRY + "test_pitfall_19_a_put_that_meets_its_own_first_try_has_succeeded",
    ),
    # And the other way round: whatever it meets is its own.
    Mutation(
        (19,),
        "kafscale/objects/retry.py",
        "if found.body != body:",
        "if False:",
        _RETRY + "test_pitfall_19_another_ones_object_is_never_taken_for_ones_own",
    ),
    # Topics are read every 10 ms.
    Mutation(
        (23,),
        "kafscale/metadata/follow.py",
        "            async with store.watch(",
        "            await trio.sleep(0.01)\n            continue\n            async with store.watch(",
        _TOPICS + "test_pitfall_23_nothing_is_asked_of_the_store_while_nothing_changes",
    ),
    # Epochs begin anew with every topic of a name.
    Mutation(
        (51,),
        "kafscale/metadata/topics.py",
        ".lifted_to(epoch)",
        ".lifted_to(0)",
        _TOPICS + "test_pitfall_51_a_topic_made_anew_starts_above_every_epoch_of_the_old_one",
    ),
    # A deletion is of a name, whatever topic has it by then.
    Mutation(
        (51,),
        "kafscale/metadata/topics.py",
        "if found is None or found.id != topic_id:",
        "if found is None:",
        _TOPICS + "test_pitfall_51_the_end_of_an_old_deletion_does_not_touch_the_new_topic",
    ),
    # The file is written where its name is.
    Mutation(
        (66,),
        "kafscale/objects/files.py",
        "os.link(temporary, path)",
        "_write(path, body, self._last_mtime)",
        _LOCAL + "test_pitfall_66_a_crash_at_any_step_leaves_the_object_whole_or_absent",
    ),
)
