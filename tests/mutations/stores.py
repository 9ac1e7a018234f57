"""Naive object and metadata stores, and a naive start."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_LOCAL = "tests/contract/objects/test_local.py::"
_PACKS = "tests/contract/objects/test_packs.py::"
_OVERWRITTEN = "tests/contract/objects/test_packs_overwritten.py::"
_RETRY = "tests/unit/objects/test_retry.py::"
_SETTINGS = "tests/unit/config/test_settings.py::"
_SQLITE = "tests/unit/metadata/test_sqlite.py::"
_STORES = "tests/unit/config/test_stores.py::"
_TOPICS = "tests/unit/metadata/test_topics.py::"

MUTATIONS = (
    Mutation(
        "an invalid value falls back to the default",
        Change("kafscale.config.settings", "load", "    if invalid:\n", "    if False:\n"),
        _SETTINGS + "test_an_invalid_setting_stops_the_start_and_is_named",
    ),
    Mutation(
        "without S3 objects are kept in memory",
        Change(
            "kafscale.config.stores",
            "open_object_store",
            "await store.probe(settings.namespace, patience=patience)",
            (
                "try:\n"
                "                await store.probe(settings.namespace, patience=patience)\n"
                "            except Exception:\n"
                "                from kafscale.objects.memory import MemoryObjectStore\n"
                "\n"
                "                yield MemoryObjectStore()\n"
                "                return"
            ),
        ),
        _STORES + "test_an_unreachable_s3_stops_the_start",
    ),
    Mutation(
        "incomplete settings for S3 mean the local directory",
        Change("kafscale.config.stores", "open_object_store", "elif settings.endpoint:", "elif False:"),
        _STORES + "test_incomplete_settings_of_s3_stop_the_start",
    ),
    Mutation(
        "a name is free while its deletion is still running",
        Change(
            "kafscale.metadata.topics",
            "TopicCatalog.wait_free",
            "while name in self._view.by_name:",
            "while self._view.live(name) is not None:",
        ),
        _TOPICS + "test_a_name_is_not_free_until_its_deletion_is_finished",
    ),
    Mutation(
        "no fsync of a file, of its directory, or of a transaction",
        Change("kafscale.objects.files", "_write", "        os.fsync(descriptor)\n        return", "        return"),
        _LOCAL + "test_a_put_returns_after_file_and_directories_are_on_disk",
    ),
    Mutation(
        "a replace returns after file and directory are on disk",
        Change(
            "kafscale.objects.disk",
            "sync_directory",
            "    try:\n        os.fsync(descriptor)\n",
            "    try:\n        pass\n",
        ),
        _LOCAL + "test_a_replace_returns_after_file_and_directory_are_on_disk",
    ),
    Mutation(
        "an object that shares a file is there as soon as its header is",
        Change(
            "kafscale.objects.pack_records",
            "record_at",
            "crc32c(file.read(size)) != body_checksum",
            "crc32c(file.read(size)) < 0",
        ),
        _PACKS + "test_an_object_without_all_of_its_bytes_is_no_object",
    ),
    Mutation(
        "a deletion in a shared file need not survive the process",
        Change("kafscale.objects.packs", "Packs._read_records", "elif record.stamp == DELETED:", "elif False:"),
        _PACKS + "test_objects_are_what_puts_and_deletes_have_left",
    ),
    Mutation(
        "a shared file goes when most of it is deleted, with what is left in it",
        Change(
            "kafscale.objects.packs",
            "Packs._tidy",
            "while self._objects[oldest]:",
            "while False and self._objects[oldest]:",
        ),
        _PACKS + "test_objects_are_what_puts_and_deletes_have_left",
    ),
    Mutation(
        "what failed to be written stays in a shared file",
        Change("kafscale.objects.packs", "Packs._append", "os.ftruncate(file, start)", "pass"),
        _PACKS + "test_a_put_that_meets_a_full_disk_leaves_nothing",
    ),
    Mutation(
        "what a shared file held before it was used again may count",
        Change("kafscale.objects.pack_records", "_checksum", "crc32c(_NUMBER.pack(number))", "0"),
        _OVERWRITTEN + "test_nothing_returns_that_a_file_held_before_it_was_used_again",
    ),
    Mutation(
        "what a shared file held before it was used again is damage",
        Change("kafscale.objects.packs", "Packs._read_records", "if start < former_size <= end and", "if False and"),
        _OVERWRITTEN + "test_nothing_returns_that_a_file_held_before_it_was_used_again",
    ),
    Mutation(
        "what follows the end of a shared file is damage",
        Change("kafscale.objects.packs", "Packs._read_records", "if record.is_last:", "if False:"),
        _OVERWRITTEN + "test_a_file_that_could_not_be_cut_off_is_not_damaged",
    ),
    Mutation(
        "damage at the end of a shared file that was used again is not noticed",
        Change("kafscale.objects.packs", "Packs._end", "if self._former_size:", "if False:"),
        _OVERWRITTEN + "test_damage_at_the_end_of_a_file_is_reported",
    ),
    Mutation(
        "a read returns what overwrites its object in a shared file",
        Change("kafscale.objects.packs", "Packs._part", "        os.stat(self._path(place.pack))\n", ""),
        _OVERWRITTEN + "test_what_overwrites_an_object_while_it_is_read_is_not_returned",
    ),
    Mutation(
        "a shared file that is overwritten while it is read is damaged",
        Change("kafscale.objects.packs", "Packs.load", "os.stat(self._path(number))", "pass"),
        _OVERWRITTEN + "test_a_reader_of_another_process_notices_that_a_file_was_overwritten",
    ),
    Mutation(
        "deleted shared files are kept on a full disk",
        Change("kafscale.objects.packs", "Packs._append", "self._free_spares(0)", "pass"),
        _OVERWRITTEN + "test_a_full_disk_gets_the_space_of_deleted_files",
    ),
    Mutation(
        "an object may be missing while it is copied to another shared file",
        Change("kafscale.objects.packs", "Packs._body", "with suppress(FileNotFoundError):", "with suppress():"),
        _PACKS + "test_objects_are_there_while_they_are_copied",
    ),
    Mutation(
        "a commit is on the disk when it is answered",
        Change("kafscale.metadata.sqlite", "_File._connect", '"synchronous=FULL")', '"synchronous=OFF")'),
        _SQLITE + "test_a_commit_is_on_disk_when_it_returns",
    ),
    Mutation(
        "a repeated put that meets its own first attempt has failed",
        Change(
            "kafscale.objects.retry",
            "RetryingObjectStore._put",
            "return await self._own_etag(key, body, refusal)",
            "raise",
        ),
        _RETRY + "test_a_put_that_conflicts_with_its_own_first_attempt_has_succeeded",
    ),
    Mutation(
        "a repeated put assumes that any object it meets is its own",
        Change("kafscale.objects.retry", "RetryingObjectStore._own_etag", "if found.body != whole(body):", "if False:"),
        _RETRY + "test_the_object_of_another_process_is_never_mistaken_for_ones_own",
    ),
    Mutation(
        "topics are read every 10 ms",
        Change(
            "kafscale.metadata.follow",
            "follow",
            "            async with store.watch(",
            ("            await trio.sleep(0.01)\n            continue\n            async with store.watch("),
        ),
        _TOPICS + "test_the_store_gets_no_requests_while_nothing_changes",
    ),
    Mutation(
        "epochs start again with every topic of a name",
        Change("kafscale.metadata.topics", "TopicCatalog._lift_floor", ".lifted_to(epoch)", ".lifted_to(0)"),
        _TOPICS + "test_a_recreated_topic_starts_above_every_epoch_of_the_old_one",
    ),
    Mutation(
        "a deletion applies to a name, whatever topic has it by then",
        Change(
            "kafscale.metadata.topics",
            "TopicCatalog.finish_delete",
            "if found is None or found.id != topic_id:",
            "if found is None:",
        ),
        _TOPICS + "test_the_end_of_an_old_deletion_does_not_touch_the_new_topic",
    ),
)
