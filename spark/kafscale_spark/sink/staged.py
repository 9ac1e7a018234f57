"""What tasks tell the driver. Without the encoder, which is slow to import and of no use to the driver."""

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True, slots=True)
class Target:
    """Under which name and number what is staged will be committed; ``once``: the sink has no other epoch."""

    sink: str
    epoch: int
    once: bool = False


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task tells the driver: its stages, serialized, those of a partition in the order of its rows.

    ``endpoints``: the storage instances that it knew.
    """

    target: Target
    stages: tuple[bytes, ...]
    endpoints: tuple[str, ...]
