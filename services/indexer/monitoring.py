"""What an indexer shows of itself: its metrics. Its checks are those of its stores and its lease."""

from kafscale.vitals import Family, by_label, counter, gauge
from services.indexer.figures import IndexerFigures


def families(figures: IndexerFigures) -> list[Family]:
    return [
        Family(
            "kafscale_indexer_indexes_total",
            "counter",
            "Indexes, by outcome: built for a flush, found intact when looked at, or rebuilt from their segments.",
            lambda: by_label(figures.indexes, ("built", "intact", "rebuilt")),
            ("outcome",),
        ),
        counter(
            "kafscale_indexer_indexes_damaged_total",
            "Look-ups for which an index was of no use, so that the whole segment was read; each is in the log.",
            lambda: figures.damaged,
        ),
        counter("kafscale_indexer_catalog_pages_total", "Pages of catalogs that were stored.", lambda: figures.pages),
        counter(
            "kafscale_indexer_segments_read_total", "Segments that were read whole.", lambda: figures.segments_read
        ),
        counter("kafscale_indexer_segments_read_bytes_total", "Bytes of these.", lambda: figures.read_bytes),
        gauge("kafscale_indexer_reads", "Whole segments that are held in memory.", lambda: figures.reading),
        gauge(
            "kafscale_indexer_reads_waiting",
            "Those that wait, since KAFSCALE_INDEXER_READS are held already.",
            lambda: figures.waiting,
        ),
    ]
