"""Settings of simulated storage instances: small sizes and short times, some of them drawn for each seed."""

import random
from dataclasses import replace

from services.storage.settings import StorageSettings

TOMBSTONES_KEPT_MS = 1000
"""The config delete.retention.ms of compacted topics."""
LONGEST_REWRITE_MS = 3000
"""How long a rewrite may take until its last step is committed."""


def storage_settings(dice: random.Random, intake_dice: random.Random) -> StorageSettings:
    """Return the settings of a seed. ``intake_dice`` draws those of the intake, so that they do not affect others."""
    return StorageSettings(
        segment_bytes=dice.choice([1500, 4000]),
        flush_interval_ms=dice.choice([50, 200, 400]),
        early_flush_bytes=1 << 20,
        cache_size=dice.choice([0, 6000, 1 << 20]),
        index_cache_size=dice.choice([0, 1 << 20]),
        readahead_segments=dice.choice([0, 2]),
        compression_codec="producer",
        partition_buffer_bytes=dice.choice([6000, 1 << 20]),
        flushes_in_flight=dice.choice([1, 3, 8]),
        partition_load_timeout_ms=700,
        index_timeout_ms=100,
        lease_ttl_seconds=1,
        commit_heartbeat_ms=200,
        retention_ms=-1,
        retention_check_ms=1000,
        stage_check_ms=1000,
        producer_expiry_ms=dice.choice([120_000, 120_000, 6000]),
        offline_retry_ms=1000,
        drain_timeout_ms=1000,
        handover_wait_ms=dice.choice([100, 400]),
        handover_timeout_ms=dice.choice([150, 3000]),
        segment_interval_ms=intake_dice.choice([50, 500, 2000]),
        intake_puts_per_second=intake_dice.choice([0, 10]),
        intake_put_burst=intake_dice.choice([1, 20]),
        intake_put_bytes=intake_dice.choice([500, 65536]),
        intake_object_bytes=intake_dice.choice([1000, 1 << 20]),
        intake_chain_bytes=intake_dice.choice([4000, 1 << 20]),
        intake_gather_ms=intake_dice.choice([0, 0, 0, 20]),
    )


def with_rewrites(settings: StorageSettings, dice: random.Random) -> StorageSettings:
    """Return the settings of a seed whose logs are rewritten. ``dice`` draws nothing else."""
    return replace(
        settings,
        merge="on",
        segment_interval_ms=dice.choice([50, 50, 500]),
        rewrite_check_ms=dice.choice([20, 50, 200]),
        rewrite_grace_ms=dice.choice([1000, 1000, 2500]),
        rewrites_in_flight=dice.choice([1, 3]),
        merge_io_bytes_per_second=0,
        merge_bytes=3000,
        rewrite_bytes=dice.choice([2000, 6000, 1 << 20]),
        # With the smallest, the keys of a log do not fit in memory.
        compaction_memory=dice.choice([200, 1 << 20]),
    )


def tombstones_stay(settings: StorageSettings) -> float:
    """Return for how many seconds tombstones stay in a compacted log at least."""
    return (TOMBSTONES_KEPT_MS + settings.rewrite_grace_ms + LONGEST_REWRITE_MS) / 1000
