"""Naive configs and partitions of topics."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_COMPACTED = "tests/unit/storage/test_compacted.py::"
_CONFIGS = "tests/unit/gateway/test_configs.py::"
_EPOCH_ENDS = "tests/unit/storage/test_epoch_ends.py::"
_GATEWAY_COMPACTED = "tests/unit/gateway/test_compacted.py::"
_PARTITIONS = "tests/unit/gateway/test_partitions.py::"
_PROTOCOL = "tests/unit/gateway/test_protocol.py::"
_SINKS = "tests/unit/storage/test_sinks.py::"
_SIZES = "tests/unit/storage/test_sizes.py::"
_STORAGE_CONFIGS = "tests/unit/storage/test_configs.py::"
_TOPICS = "tests/unit/gateway/test_topics.py::"
_TOPICS_CONFIGS = "tests/unit/topics/test_configs.py::"
_TOPIC_CHANGES = "tests/unit/metadata/test_topic_changes.py::"

MUTATIONS = (
    Mutation(
        "tools do not list partitions as under min ISR because of an ignored config",
        Change(
            "services.gateway.topics.configs",
            "ShownConfig.value",
            "return self.fixed or self.synonyms[0].value",
            "return self.synonyms[0].value",
        ),
        _CONFIGS + "test_min_insync_replicas_refuses_no_producer_and_is_described_as_1",
    ),
    Mutation(
        "kafka's internal topics are never created automatically",
        Change(
            "services.gateway.apis.metadata",
            "_missing_topics",
            "is_topic_name(name) and name not in _NEVER_CREATED and name not in view.by_name",
            "is_topic_name(name) and name not in view.by_name",
        ),
        _TOPICS + "test_kafkas_internal_topics_are_never_created_automatically_but_may_be_by_hand",
    ),
    Mutation(
        "partitions are not assigned to brokers that do not exist",
        Change("services.gateway.topics.assignments", "check_replicas", "if broker not in known:", "if broker < 0:"),
        _PARTITIONS + "test_invalid_numbers_of_partitions_are_refused",
    ),
    Mutation(
        "a client that seeks with epoch 0 stays at its position",
        Change(
            "services.storage.log.partition",
            "CommittedLog.end_of_epoch",
            "unknown = i == 0 and epoch == IMPORTED",
            "unknown = False",
        ),
        _EPOCH_ENDS + "test_epoch_0_ends_with_the_log_unless_its_first_records_were_imported",
    ),
    Mutation(
        "DescribeConfigs returns nothing; CreatePartitions succeeds without an effect",
        Change(
            "services.gateway.apis.describe_configs",
            "handle",
            "selected = (config for config in configs if not names or config.name in names)",
            "selected = (config for config in configs if config.name in names)",
        ),
        _CONFIGS + "test_a_topic_is_described_with_all_or_the_requested_configs",
    ),
    Mutation(
        "new partitions are listed and can be written",
        Change("services.gateway.apis.create_partitions", "handle", "[] if request.validate_only else plans", "[]"),
        _PARTITIONS + "test_new_partitions_are_listed_and_writable",
    ),
    Mutation(
        "a changed max.message.bytes applies to the next batch",
        Change(
            "services.gateway.topic_cache",
            "TopicCache._current",
            "if view.by_id.get(key) is known.info",
            "if key in view.by_id",
        ),
        _CONFIGS + "test_a_changed_max_message_bytes_applies_to_the_next_batch",
    ),
    Mutation(
        "concurrent requests never reduce a topic's partitions",
        Change(
            "kafscale.metadata.topics",
            "TopicCatalog._change",
            ("result = await self._store.txn([Unchanged(key, found.mod_revision)], [Put(key, changed.value())])"),
            "result = await self._store.txn([], [Put(key, changed.value())])",
        ),
        _TOPIC_CHANGES + "test_two_concurrent_changes_of_the_partition_count_never_reduce_it",
    ),
    Mutation(
        "partitions created by a request with a lost answer are no error",
        Change(
            "kafscale.metadata.topics",
            "TopicCatalog.grow",
            "return found if unsure and found.partitions >= partitions else found.grown(partitions)",
            "return found.grown(partitions)",
        ),
        _TOPIC_CHANGES + "test_growing_is_safe_to_retry_whichever_answer_is_missing",
    ),
    Mutation(
        "a topic that is being deleted is not changed",
        Change(
            "kafscale.metadata.topics",
            "TopicCatalog._change",
            "if found is None or not found.live or found.id != topic_id:",
            "if found is None or found.id != topic_id:",
        ),
        _TOPIC_CHANGES + "test_a_deleted_topic_can_no_longer_be_changed",
    ),
    Mutation(
        "configs are changed from their stored values, not from the gateway's view",
        Change(
            "services.gateway.topics.resources",
            "_change",
            "lambda configs: _validated(change, configs)",
            "lambda configs: _validated(change, topic.configs)",
        ),
        _CONFIGS + "test_configs_that_another_gateway_changes_meanwhile_are_kept",
    ),
    Mutation(
        "validate_only changes nothing",
        Change(
            "services.gateway.topics.resources",
            "change_all",
            "if topic is not None and dry:",
            "if topic is not None and dry is None:",
        ),
        _PROTOCOL + "test_every_advertised_version_is_answered_completely",
    ),
    Mutation(
        "an answer has no more partitions than the gateway's limit",
        Change(
            "services.gateway.apis.describe_topic_partitions",
            "_described",
            "min(request.response_partition_limit, _MOST_PARTITIONS)",
            "request.response_partition_limit",
        ),
        _PARTITIONS + "test_a_reply_has_a_bounded_number_of_partitions",
    ),
    Mutation(
        "a changed config applies to buffered records",
        Change(
            "services.storage.writing.buffers",
            "Buffers.configured",
            "        self._timers.clear(partition)\n        self.look_at(partition)",
            "        pass",
        ),
        _STORAGE_CONFIGS + "test_a_shorter_flush_ms_applies_to_buffered_records",
    ),
    Mutation(
        "configs that change during a take-over take effect",
        Change("services.storage.run", "Run._taken", "self._configs.apply(partition)", "pass"),
        _STORAGE_CONFIGS + "test_configs_changed_during_a_take_over_apply",
    ),
    Mutation(
        "segment.bytes applies to partitions that are already owned",
        Change(
            "services.storage.owning.owned",
            "OwnedPartitions.configure",
            "partition.buffer.segment_bytes = self._segment_bytes(config)",
            "pass",
        ),
        _STORAGE_CONFIGS + "test_segment_bytes_applies_from_the_next_append",
    ),
    Mutation(
        "a segment fits into the buffer several times, whatever the topic's config",
        Change(
            "services.storage.owning.owned",
            "OwnedPartitions._segment_bytes",
            "return min(config.segment_bytes, self._settings.partition_buffer_bytes // 4)",
            "return config.segment_bytes",
        ),
        _STORAGE_CONFIGS + "test_segment_bytes_is_capped_at_a_quarter_of_the_buffer",
    ),
    Mutation(
        "kafka's default of flush.ms does not mean never",
        Change("kafscale.topics.configs", "TopicConfig.of", "if flush_ms > LONGEST_FLUSH_MS:", "if flush_ms < 0:"),
        _STORAGE_CONFIGS + "test_kafkas_default_flush_ms_does_not_delay_producers",
    ),
    Mutation(
        "a request for sizes takes over no empty partition",
        Change(
            "services.storage.methods.log_sizes",
            "_log_size",
            "if run.owned.may_acquire(ref) and not await run.owned.has_records(ref):",
            "if not run.owned.may_acquire(ref):",
        ),
        _SIZES + "test_partitions_without_records_are_not_taken_over_for_their_size",
    ),
    Mutation(
        "a change of one topic costs nothing for others",
        Change(
            "services.storage.owning.configs",
            "_other_configs",
            "if known is not topic and (known is None or known.configs != topic.configs):",
            "if known is None or known.live:",
        ),
        _STORAGE_CONFIGS + "test_a_config_change_visits_only_the_partitions_of_its_topic",
    ),
    Mutation(
        "sizes are computed concurrently",
        Change(
            "services.storage.methods.log_sizes",
            "log_sizes",
            "range(min(deps.settings.reads_in_flight, len(results)))",
            "range(1)",
        ),
        _SIZES + "test_partitions_are_measured_concurrently_and_a_slow_one_does_not_delay_the_others",
    ),
    Mutation(
        "retention removes nothing from a topic that is only compacted",
        Change(
            "kafscale.topics.configs",
            "TopicConfig.of",
            'retention_ms=int(value("retention.ms")) if deletes else -1,',
            'retention_ms=int(value("retention.ms")),',
        ),
        _COMPACTED + "test_retention_applies_to_compacted_topics_only_with_delete_and_their_bytes_are_reported",
    ),
    Mutation(
        "an empty cleanup policy is not replaced by the cluster's",
        Change(
            "kafscale.topics.configs",
            "TopicConfig.of",
            "found = configs.get(name, defaults.get(name))",
            "found = configs.get(name) or defaults.get(name)",
        ),
        _TOPICS_CONFIGS + "test_a_cleanup_policy_is_kept_as_set_and_decides_what_retention_may_delete",
    ),
    Mutation(
        "old messages need keys in a compacted topic too",
        Change(
            "services.gateway.validation",
            "convert_legacy",
            "        return with_keys(batch, partition, max_bytes=max_bytes)",
            "        return batch",
        ),
        _GATEWAY_COMPACTED + "test_old_messages_without_a_key_are_refused",
    ),
    Mutation(
        "compressed batches are checked for keys",
        Change(
            "kafscale.records.record",
            "records_without_key",
            "        if key_length < 0:\n            found.append(place)",
            "        if key_length < 0 and not header.codec:\n            found.append(place)",
        ),
        _GATEWAY_COMPACTED + "test_a_batch_with_a_keyless_record_is_refused_as_a_whole",
    ),
    Mutation(
        "sinks write no records without keys to a compacted topic",
        Change(
            "services.storage.sinks.staging",
            "counted",
            "            if keyless:",
            "            if keyless and not batches:",
        ),
        _SINKS + "test_records_without_a_key_are_not_staged_for_a_compacted_topic",
    ),
)
