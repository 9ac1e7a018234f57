"""What a storage instance shows of itself: its checks and its metrics."""

from collections.abc import Callable
from typing import get_args

from kafscale.metadata.members import Members
from kafscale.metadata.membership import Membership
from kafscale.service.operations import Operations
from kafscale.vitals import HEALTHY, Family, Finding, State, by_label, counter, gauge
from services.storage.buffer import Trigger
from services.storage.figures import StorageFigures
from services.storage.run import Run
from services.storage.service import StorageService
from services.storage.settings import StorageSettings


def show(storage: StorageService, figures: StorageFigures, members: Members, operations: Operations) -> None:
    """Add them to those of the process. ``figures`` and ``members`` are those that ``storage`` was made with."""

    def current() -> Run | None:
        return storage.current

    def membership() -> Membership | None:
        return storage.current.membership if storage.current else None

    operations.watch_lease(membership)
    operations.watch_address(membership, members, unready_from=State.UNAVAILABLE)
    operations.health.add("partitions", lambda: _partitions(storage.current))
    operations.health.add("sinks", lambda: _sinks(storage.current))
    operations.metrics.add(families(figures, current, storage.settings))


def _partitions(run: Run | None) -> Finding:
    """Whether all partitions of this instance can be written."""
    offline = [partition for partition in run.owned if partition.offline] if run else []
    if not offline:
        return HEALTHY
    names = ", ".join(partition.name for partition in offline[:5])
    return Finding(State.DEGRADED, f"{len(offline)} partitions are offline: {names}: {offline[0].offline}")


def _sinks(run: Run | None) -> Finding:
    """Whether all that sinks have committed to this instance's partitions can be appended."""
    waiting = [trouble for trouble in run.sinks.appends.troubles.values() if trouble.lasting] if run else []
    if not waiting:
        return HEALTHY
    first = waiting[0]
    return Finding(
        State.DEGRADED, f"{len(waiting)} partitions lack what sinks committed: {first.partition}: {first.reason}"
    )


_Now = Callable[[Callable[[Run], float]], Callable[[], float]]


def families(figures: StorageFigures, current: Callable[[], Run | None], settings: StorageSettings) -> list[Family]:
    """``current`` gives the present run; None: there is none."""

    def now(read: Callable[[Run], float]) -> Callable[[], float]:
        def value() -> float:
            run = current()
            return 0 if run is None else read(run)

        return value

    return [
        *_ownership_families(figures, now),
        *_write_families(figures, now, settings),
        *_read_families(figures, now, settings),
        *_sink_families(figures, now, settings),
    ]


def _ownership_families(figures: StorageFigures, now: _Now) -> list[Family]:
    return [
        gauge(
            "kafscale_storage_partitions_owned",
            "Partitions that this instance owns.",
            now(lambda run: sum(1 for _ in run.owned)),
        ),
        gauge(
            "kafscale_storage_partitions_offline",
            "Owned partitions that take no records, because metadata or objects are damaged.",
            now(lambda run: sum(bool(partition.offline) for partition in run.owned)),
        ),
        counter(
            "kafscale_storage_offline_retries_total",
            "Tries to read again what put a partition offline when it was taken over.",
            lambda: figures.offline_retries,
        ),
        gauge(
            "kafscale_storage_partitions_loading",
            "Partitions that this instance is taking over, or has failed to for less than 10 seconds.",
            now(lambda run: run.owned.loading),
        ),
        gauge(
            "kafscale_storage_compacted_topics_bytes",
            "Segments of owned partitions whose topic's cleanup.policy has compact, as the last retention check found "
            "them. A check measures about 25,000 segments that it has to list, so that a longer log counts in full "
            "after some checks, and begins again when its start moves. Logs are not compacted yet: nothing of this is "
            "removed but by delete's retention, where that is set too.",
            now(lambda run: sum(partition.measured.bytes for partition in run.owned if partition.config.compacted)),
        ),
        counter("kafscale_storage_take_overs_total", "Partitions taken over.", lambda: figures.take_overs),
        Family(
            "kafscale_storage_take_over_seconds",
            "histogram",
            "How long take-overs took, their failed tries and the waiting for the former owner included.",
            lambda: {(): figures.take_over_seconds},
        ),
        counter("kafscale_storage_hand_overs_total", "Partitions given back in order.", lambda: figures.hand_overs),
        counter("kafscale_storage_fenced_total", "Partitions lost to another owner.", lambda: figures.fenced),
        counter("kafscale_storage_leases_lost_total", "Leases that ran out.", lambda: figures.leases_lost),
    ]


def _write_families(figures: StorageFigures, now: _Now, settings: StorageSettings) -> list[Family]:
    return [
        counter(
            "kafscale_storage_appended_bytes_total",
            "Bytes of batches that were taken in, as they came: from producers and of sinks.",
            lambda: figures.appended_bytes,
        ),
        counter(
            "kafscale_storage_appended_records_total",
            "Offsets that these batches were given.",
            lambda: figures.appended_records,
        ),
        gauge(
            "kafscale_storage_buffered_bytes",
            "Records that are taken in and not committed yet.",
            now(lambda run: run.buffered_bytes),
        ),
        gauge("kafscale_storage_buffer_limit_bytes", "KAFSCALE_BUFFER_BYTES.", lambda: settings.buffer_bytes),
        Family(
            "kafscale_storage_flushes_total",
            "counter",
            "Buffers whose upload began, by why they were closed: full (size), at the end of flush.ms (interval), as "
            "nothing more came (quiet), on request, or to hand the partition over (hand_over).",
            lambda: by_label(figures.flushes, get_args(Trigger)),
            ("trigger",),
        ),
        Family(
            "kafscale_storage_flush_seconds",
            "histogram",
            "From the beginning of a buffer's upload until segment and index are stored.",
            lambda: {(): figures.flush_seconds},
        ),
        counter("kafscale_storage_segments_committed_total", "Segments committed.", lambda: figures.segments),
        counter(
            "kafscale_storage_committed_bytes_total", "Bytes of committed segments.", lambda: figures.committed_bytes
        ),
        Family(
            "kafscale_storage_commit_seconds",
            "histogram",
            "How long commits to the metadata store took, with all their repeats.",
            lambda: {(): figures.commit_seconds},
        ),
        Family(
            "kafscale_storage_appends_refused_total",
            "counter",
            "Appends of one partition that were refused, by reason.",
            lambda: by_label(figures.refused, ("BUFFER_FULL", "NOT_OWNER")),
            ("reason",),
        ),
        Family(
            "kafscale_storage_index_builds_total",
            "counter",
            "Indexes built for flushes: by an indexer, or by storage itself because none answered in time.",
            lambda: by_label(figures.builds, ("indexer", "storage")),
            ("by",),
        ),
    ]


def _read_families(figures: StorageFigures, now: _Now, settings: StorageSettings) -> list[Family]:
    segments, indexes = figures.segment_cache, figures.index_cache
    return [
        counter(
            "kafscale_storage_fetched_bytes_total",
            "Bytes of batches given to gateways for consumers.",
            lambda: figures.fetched_bytes,
        ),
        gauge("kafscale_storage_scans", "Scans under way.", lambda: figures.scans),
        counter(
            "kafscale_storage_scanned_bytes_total", "Bytes of batches given to scans.", lambda: figures.scanned_bytes
        ),
        Family(
            "kafscale_storage_cache_requests_total",
            "counter",
            "Reads that the segment and the index cache could serve (hit) or not (miss).",
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
            "Memory that the caches use.",
            lambda: {
                ("segments",): now(lambda run: run.reader.segments.used_bytes)(),
                ("indexes",): now(lambda run: run.reader.indexes.used_bytes)(),
            },
            ("cache",),
        ),
        Family(
            "kafscale_storage_cache_limit_bytes",
            "gauge",
            "KAFSCALE_CACHE_SIZE and KAFSCALE_INDEX_CACHE_SIZE.",
            lambda: {("segments",): settings.cache_size, ("indexes",): settings.index_cache_size},
            ("cache",),
        ),
    ]


def _sink_families(figures: StorageFigures, now: _Now, settings: StorageSettings) -> list[Family]:
    return [
        counter("kafscale_storage_staged_bytes_total", "Bytes that sinks staged.", lambda: figures.staged_bytes),
        counter("kafscale_storage_sink_commits_total", "Epochs of sinks committed.", lambda: figures.sink_commits),
        counter(
            "kafscale_storage_sink_batches_total", "Batches of sinks' epochs appended.", lambda: figures.sink_batches
        ),
        counter(
            "kafscale_storage_stages_expired_total",
            "Staged objects that were deleted because they had become too old to be committed.",
            lambda: figures.stages_expired,
        ),
        gauge("kafscale_storage_sinks", "Sinks that are remembered.", now(lambda run: len(run.sinks.view))),
        gauge("kafscale_storage_sinks_limit", "KAFSCALE_MAX_SINKS.", lambda: settings.max_sinks),
        gauge(
            "kafscale_storage_sinks_pending",
            "Sinks whose committed epoch some partition does not show yet.",
            now(lambda run: len(run.sinks.view.pending())),
        ),
        gauge(
            "kafscale_storage_sink_oldest_pending_seconds",
            "How long ago the oldest of these was committed; 0: there is none.",
            now(lambda run: run.sinks.oldest_pending_seconds()),
        ),
    ]
