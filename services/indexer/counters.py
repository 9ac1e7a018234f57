"""What an indexer counts of its work."""

from collections import Counter


class IndexerCounters:
    """Plain numbers that its parts add to."""

    def __init__(self) -> None:
        self.indexes: Counter[str] = Counter()  # by outcome
        self.pages = 0
        self.segments_read = self.read_bytes = 0
        # Whole segments that are in memory, and requests that wait until there is room for theirs.
        self.reading = self.waiting = 0
