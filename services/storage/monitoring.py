"""The health checks and metrics of a storage instance."""

from collections.abc import Callable
from typing import get_args

from kafscale.metadata.members import Members
from kafscale.metadata.membership import Membership
from kafscale.process.operations import Operations
from kafscale.telemetry import HEALTHY, Family, Finding, State, by_label, counter, gauge
from services.storage.counters import StorageCounters
from services.storage.log.buffer import Trigger
from services.storage.run import Run
from services.storage.service import StorageService
from services.storage.settings import StorageSettings

_LATE_SECONDS = 10.0
"""An intake object that is not stored for so long is more than a slow PUT."""


def show(storage: StorageService, counters: StorageCounters, members: Members, operations: Operations) -> None:
    """Add them to those of the process. ``counters`` and ``members`` must be those of ``storage``."""

    def current() -> Run | None:
        return storage.current

    def membership() -> Membership | None:
        return storage.current.membership if storage.current else None

    operations.watch_lease(membership)
    operations.watch_address(membership, members, unready_from=State.UNAVAILABLE)
    operations.health.add("partitions", lambda: _partitions(storage.current))
    operations.health.add("sinks", lambda: _sinks(storage.current))
    operations.health.add("intake", lambda: _intake(storage.current))
    operations.metrics.add(families(counters, current, storage.settings))


def _partitions(run: Run | None) -> Finding:
    """Check whether all partitions of this instance accept records."""
    offline = [partition for partition in run.owned if partition.offline] if run else []
    damaged = run.owned.damaged if run else []
    if damaged:
        return Finding(State.DEGRADED, f"{len(damaged)} partitions cannot be taken over: {damaged[0]}")
    if not offline:
        return HEALTHY
    names = ", ".join(partition.name for partition in offline[:5])
    return Finding(State.DEGRADED, f"{len(offline)} partitions are offline: {names}: {offline[0].offline}")


def _sinks(run: Run | None) -> Finding:
    """Check whether all committed sink records can be appended to this instance's partitions."""
    waiting = [trouble for trouble in run.sinks.appends.troubles.values() if trouble.lasting] if run else []
    if not waiting:
        return HEALTHY
    first = waiting[0]
    return Finding(
        State.DEGRADED, f"{len(waiting)} partitions lack committed sink records: {first.partition}: {first.reason}"
    )


def _intake(run: Run | None) -> Finding:
    """Check whether the metadata knows all intakes in the bucket, and whether the objects of this one are stored."""
    if run is None:
        return HEALTHY
    if run.intake.unknown:
        return Finding(
            State.UNAVAILABLE,
            f"no partition is taken over: the metadata does not know the intake of run {run.intake.unknown}",
        )
    seconds, error = run.intake.writer.late
    if seconds < _LATE_SECONDS:
        return HEALTHY
    return Finding(State.UNAVAILABLE, f"an object was not stored for {seconds:.0f} s: {error or 'no answer'}")


_Now = Callable[[Callable[[Run], float]], Callable[[], float]]


def families(counters: StorageCounters, current: Callable[[], Run | None], settings: StorageSettings) -> list[Family]:
    """Return the metrics. ``current`` returns the current run, or None if there is none."""

    def now(read: Callable[[Run], float]) -> Callable[[], float]:
        def value() -> float:
            run = current()
            return 0 if run is None else read(run)

        return value

    return [
        *_ownership_families(counters, now),
        *_write_families(counters, now, settings),
        *_intake_families(counters, now, settings),
        *_read_families(counters, now, settings),
        *_rewrite_families(counters, now),
        *_sink_families(counters, now, settings),
    ]


def _ownership_families(counters: StorageCounters, now: _Now) -> list[Family]:
    return [
        gauge(
            "kafscale_storage_partitions_owned",
            "The number of partitions that this instance owns.",
            now(lambda run: sum(1 for _ in run.owned)),
        ),
        gauge(
            "kafscale_storage_partitions_offline",
            "The number of owned partitions that accept no records because metadata or objects are damaged.",
            now(lambda run: sum(bool(partition.offline) for partition in run.owned)),
        ),
        counter(
            "kafscale_storage_offline_retries_total",
            "The number of attempts to read the data again that made a partition offline when it was taken over.",
            lambda: counters.offline_retries,
        ),
        gauge(
            "kafscale_storage_partitions_loading",
            "The number of partitions that this instance is taking over, or has failed to take over for less than 10 "
            "seconds.",
            now(lambda run: run.owned.loading),
        ),
        gauge(
            "kafscale_storage_compacted_topics_bytes",
            "The size of the logs of owned partitions whose topic's cleanup.policy includes compact, as of the last "
            "retention check. A check lists and measures at most about 25,000 segments, so a longer log is counted "
            "completely only after several checks. When the start of the log moves, the measurement starts again.",
            now(lambda run: sum(partition.measured.bytes for partition in run.owned if partition.config.compacted)),
        ),
        counter(
            "kafscale_storage_take_overs_total", "The number of partitions taken over.", lambda: counters.take_overs
        ),
        Family(
            "kafscale_storage_take_over_seconds",
            "histogram",
            "The duration of takeovers, including failed attempts and the wait for the previous owner.",
            lambda: {(): counters.take_over_seconds},
        ),
        counter(
            "kafscale_storage_hand_overs_total",
            "The number of partitions handed over in an orderly way.",
            lambda: counters.hand_overs,
        ),
        counter(
            "kafscale_storage_fenced_total", "The number of partitions lost to another owner.", lambda: counters.fenced
        ),
        counter(
            "kafscale_storage_leases_lost_total", "The number of leases that expired.", lambda: counters.leases_lost
        ),
    ]


def _write_families(counters: StorageCounters, now: _Now, settings: StorageSettings) -> list[Family]:
    return [
        counter(
            "kafscale_storage_appended_bytes_total",
            "The number of bytes of accepted batches from producers and sinks, in the form in which they arrived.",
            lambda: counters.appended_bytes,
        ),
        counter(
            "kafscale_storage_appended_records_total",
            "The number of offsets assigned to accepted batches.",
            lambda: counters.appended_records,
        ),
        gauge(
            "kafscale_storage_buffered_bytes",
            "The number of bytes of records that are accepted and not in committed segments yet.",
            now(lambda run: run.buffers.size),
        ),
        gauge(
            "kafscale_storage_buffer_limit_bytes", "The value of KAFSCALE_BUFFER_BYTES.", lambda: settings.buffer_bytes
        ),
        Family(
            "kafscale_storage_flushes_total",
            "counter",
            "The number of buffers whose upload began, by the reason for closing the buffer: it was full (size), "
            "the interval ended (interval), nothing more arrived (quiet), a flush was requested or the intake was too "
            "long (request), the partition was handed over (hand_over), its records were recovered from the intake of "
            "the former owner (take_over), or much was buffered (memory).",
            lambda: by_label(counters.flushes, get_args(Trigger)),
            ("trigger",),
        ),
        Family(
            "kafscale_storage_flush_seconds",
            "histogram",
            "The time from the beginning of a buffer's upload until its segment is stored.",
            lambda: {(): counters.flush_seconds},
        ),
        counter(
            "kafscale_storage_segments_committed_total", "The number of segments committed.", lambda: counters.segments
        ),
        counter(
            "kafscale_storage_committed_bytes_total",
            "The number of bytes of committed segments.",
            lambda: counters.committed_bytes,
        ),
        Family(
            "kafscale_storage_commit_seconds",
            "histogram",
            "The duration of commits to the metadata store, including all retries.",
            lambda: {(): counters.commit_seconds},
        ),
        Family(
            "kafscale_storage_appends_refused_total",
            "counter",
            "The number of refused appends, by reason. Each partition is counted.",
            lambda: by_label(counters.refused, ("BUFFER_FULL", "NOT_OWNER")),
            ("reason",),
        ),
        Family(
            "kafscale_storage_index_builds_total",
            "counter",
            "The number of indexes stored for new segments: by an indexer, or by storage itself because no indexer "
            "answered in time.",
            lambda: by_label(counters.builds, ("indexer", "storage")),
            ("by",),
        ),
    ]


def _intake_families(counters: StorageCounters, now: _Now, settings: StorageSettings) -> list[Family]:
    return [
        counter(
            "kafscale_storage_intake_objects_total",
            "The number of intake objects that were stored.",
            lambda: counters.intake_objects,
        ),
        counter(
            "kafscale_storage_intake_bytes_total",
            "The number of bytes of batches in these objects.",
            lambda: counters.intake_bytes,
        ),
        Family(
            "kafscale_storage_intake_seconds",
            "histogram",
            "The time of each stage that records pass until they are durable: until the PUT of an intake object with "
            "them begins (wait, one record at a time is observed), until the object is stored (put), and until all "
            "objects before it are stored too (count).",
            lambda: {
                ("wait",): counters.intake_wait_seconds,
                ("put",): counters.intake_put_seconds,
                ("count",): counters.intake_count_seconds,
            },
            ("stage",),
        ),
        gauge(
            "kafscale_storage_intake_waiting_bytes",
            "The number of bytes of records that wait for an intake object.",
            now(lambda run: run.intake.writer.waiting),
        ),
        gauge(
            "kafscale_storage_intake_tokens",
            "The number of intake objects that may be written at once. Below 0, an object was written without a token.",
            now(lambda run: run.intake.writer.tokens),
        ),
        gauge(
            "kafscale_storage_intake_chain_objects",
            "The number of intake objects with records that are not in segments yet.",
            now(lambda run: run.intake.writer.objects),
        ),
        gauge(
            "kafscale_storage_intake_chain_bytes",
            "The number of bytes of batches in these objects.",
            now(lambda run: run.intake.writer.size),
        ),
        gauge(
            "kafscale_storage_intake_chain_limit_bytes",
            "The value of KAFSCALE_INTAKE_CHAIN_BYTES.",
            lambda: settings.intake_chain_bytes,
        ),
        gauge(
            "kafscale_storage_intake_oldest_seconds",
            "The time since the oldest records in these objects were first put, or 0 if there are none.",
            now(lambda run: run.intake.writer.oldest_seconds),
        ),
        counter(
            "kafscale_storage_intakes_sealed_total",
            "The number of intakes of former owners that were sealed and read.",
            lambda: counters.intakes_sealed,
        ),
        gauge(
            "kafscale_storage_intake_unknown",
            "1 if this instance takes over no partitions because the bucket has an intake that the metadata does not "
            "know, else 0.",
            now(lambda run: bool(run.intake.unknown)),
        ),
    ]


def _read_families(counters: StorageCounters, now: _Now, settings: StorageSettings) -> list[Family]:
    segments, indexes = counters.segment_cache, counters.index_cache
    return [
        counter(
            "kafscale_storage_fetched_bytes_total",
            "The number of bytes of batches sent to gateways for consumers.",
            lambda: counters.fetched_bytes,
        ),
        gauge("kafscale_storage_scans", "The number of scans in progress.", lambda: counters.scans),
        counter(
            "kafscale_storage_scanned_bytes_total",
            "The number of bytes of batches sent to scans.",
            lambda: counters.scanned_bytes,
        ),
        Family(
            "kafscale_storage_cache_requests_total",
            "counter",
            "The number of reads that were served from the segment or index cache (hit) or not (miss).",
            lambda: {
                ("segments", "hit"): segments.hits,
                ("segments", "miss"): segments.misses,
                ("indexes", "hit"): indexes.hits,
                ("indexes", "miss"): indexes.misses,
            },
            ("cache", "outcome"),
        ),
        Family(
            "kafscale_storage_cache_bytes",
            "gauge",
            "The memory used by the caches.",
            lambda: {
                ("segments",): now(lambda run: run.reader.segments.used_bytes)(),
                ("indexes",): now(lambda run: run.reader.indexes.used_bytes)(),
            },
            ("cache",),
        ),
        Family(
            "kafscale_storage_cache_limit_bytes",
            "gauge",
            "The values of KAFSCALE_CACHE_SIZE and KAFSCALE_INDEX_CACHE_SIZE.",
            lambda: {("segments",): settings.cache_size, ("indexes",): settings.index_cache_size},
            ("cache",),
        ),
    ]


def _rewrite_families(counters: StorageCounters, now: _Now) -> list[Family]:
    return [
        Family(
            "kafscale_storage_rewrite_steps_total",
            "counter",
            "The number of committed steps of rewrites. Each replaces consecutive objects of a log.",
            lambda: by_label(counters.rewrite_steps, ("compaction", "merge")),
            ("kind",),
        ),
        counter(
            "kafscale_storage_rewrite_failures_total",
            "The number of rewrites that failed. They are tried again after a minute, and continue with the last step "
            "that was committed.",
            lambda: counters.rewrites_failed,
        ),
        counter(
            "kafscale_storage_rewrite_read_bytes_total",
            "The number of bytes in the objects that committed steps replaced.",
            lambda: counters.rewrite_read_bytes,
        ),
        counter(
            "kafscale_storage_rewrite_written_bytes_total",
            "The number of bytes in the objects that took their place.",
            lambda: counters.rewrite_written_bytes,
        ),
        gauge(
            "kafscale_storage_uncompacted_bytes",
            "The size of what compaction has not seen yet and could compact, in the owned partitions, as of the last "
            "check. A part of the log below min.cleanable.dirty.ratio stays uncompacted.",
            now(lambda run: sum(partition.dirty_bytes for partition in run.owned)),
        ),
        gauge(
            "kafscale_storage_oldest_uncompacted_seconds",
            "The age of the oldest records that compaction has not seen yet and could compact.",
            now(lambda run: run.oldest_uncompacted_seconds),
        ),
        gauge(
            "kafscale_storage_obsolete_objects",
            "The number of objects and indexes that were replaced in the owned partitions and are not deleted yet "
            "(KAFSCALE_REWRITE_GRACE_MS).",
            now(lambda run: sum(len(partition.obsolete) for partition in run.owned)),
        ),
    ]


def _sink_families(counters: StorageCounters, now: _Now, settings: StorageSettings) -> list[Family]:
    return [
        counter(
            "kafscale_storage_staged_bytes_total", "The number of bytes staged by sinks.", lambda: counters.staged_bytes
        ),
        counter(
            "kafscale_storage_sink_commits_total", "The number of sink epochs committed.", lambda: counters.sink_commits
        ),
        counter(
            "kafscale_storage_sink_batches_total",
            "The number of batches of sink epochs appended.",
            lambda: counters.sink_batches,
        ),
        counter(
            "kafscale_storage_stages_expired_total",
            "The number of staged objects that were deleted because they were too old to be committed.",
            lambda: counters.stages_expired,
        ),
        gauge(
            "kafscale_storage_sinks", "The number of sinks that are remembered.", now(lambda run: len(run.sinks.view))
        ),
        gauge("kafscale_storage_sinks_limit", "The value of KAFSCALE_MAX_SINKS.", lambda: settings.max_sinks),
        gauge(
            "kafscale_storage_sinks_pending",
            "The number of sinks whose committed epoch is not visible in all partitions yet.",
            now(lambda run: len(run.sinks.view.pending())),
        ),
        gauge(
            "kafscale_storage_sink_oldest_pending_seconds",
            "The time since the oldest of these epochs was committed, or 0 if there is none.",
            now(lambda run: run.sinks.oldest_pending_seconds()),
        ),
    ]
