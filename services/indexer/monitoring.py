"""The metrics of an indexer. Its health checks are those of its stores and its lease."""

from kafscale.telemetry import Family, by_label, counter, gauge
from services.indexer.counters import IndexerCounters

_REWRITES = tuple(
    (kind, result)
    for kind in ("merge", "compact")
    for result in ("done", "damaged", "unavailable", "invalid", "cancelled")
)


def families(counters: IndexerCounters) -> list[Family]:
    return [
        Family(
            "kafscale_indexer_indexes_total",
            "counter",
            "The number of indexes, by outcome: built for a flush, found intact by a check, or rebuilt from their "
            "segments.",
            lambda: by_label(counters.indexes, ("built", "intact", "rebuilt")),
            ("outcome",),
        ),
        counter(
            "kafscale_indexer_catalog_pages_total",
            "The number of catalog pages that were stored.",
            lambda: counters.pages,
        ),
        counter(
            "kafscale_indexer_segments_read_total",
            "The number of segments and rewritten objects that were read completely, without those of rewrites.",
            lambda: counters.segments_read,
        ),
        counter(
            "kafscale_indexer_segments_read_bytes_total",
            "The number of bytes of these objects.",
            lambda: counters.read_bytes,
        ),
        gauge(
            "kafscale_indexer_reads",
            "The number of complete segments and rewritten objects that are held in memory, without those of rewrites.",
            lambda: counters.reading,
        ),
        gauge(
            "kafscale_indexer_reads_waiting",
            "The number of reads that wait because KAFSCALE_INDEXER_READS objects are already held.",
            lambda: counters.waiting,
        ),
        Family(
            "kafscale_indexer_rewrites_total",
            "counter",
            "The number of rewrites of logs, by kind and result: finished; ended by missing or damaged objects, by an "
            "object store or process that failed, or by a request with a fault or whose keys do not fit in memory; or "
            "cancelled by the owner of the partition.",
            lambda: {labels: counters.rewrites[labels] for labels in _REWRITES},
            ("kind", "result"),
        ),
        counter(
            "kafscale_indexer_rewrite_read_bytes_total",
            "The number of bytes of the objects that rewrites read.",
            lambda: counters.rewrite_read_bytes,
        ),
        counter(
            "kafscale_indexer_rewrite_written_bytes_total",
            "The number of bytes of the objects and indexes that rewrites stored.",
            lambda: counters.rewrite_written_bytes,
        ),
        gauge(
            "kafscale_indexer_rewrites_in_progress",
            "The number of rewrites in progress.",
            lambda: counters.rewriting,
        ),
        gauge(
            "kafscale_indexer_rewrites_waiting",
            "The number of rewrites that wait because KAFSCALE_REWRITES others are in progress.",
            lambda: counters.rewrites_waiting,
        ),
    ]
