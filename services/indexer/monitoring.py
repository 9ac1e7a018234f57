"""The metrics of an indexer. Its health checks are those of its stores and its lease."""

from kafscale.telemetry import Family, by_label, counter, gauge
from services.indexer.counters import IndexerCounters


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
            "The number of segments that were read completely.",
            lambda: counters.segments_read,
        ),
        counter(
            "kafscale_indexer_segments_read_bytes_total",
            "The number of bytes of these segments.",
            lambda: counters.read_bytes,
        ),
        gauge(
            "kafscale_indexer_reads",
            "The number of complete segments that are held in memory.",
            lambda: counters.reading,
        ),
        gauge(
            "kafscale_indexer_reads_waiting",
            "The number of reads that wait because KAFSCALE_INDEXER_READS segments are already held.",
            lambda: counters.waiting,
        ),
    ]
