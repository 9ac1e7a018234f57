"""The messages of tasks to the driver. Does not import the encoder, which is slow to import."""

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True, slots=True)
class Target:
    """The sink and epoch of a commit. With ``once``, the sink has no other epoch."""

    sink: str
    epoch: int
    once: bool = False


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """A task's serialized stages; those of a partition are in the order of the task's rows.

    ``endpoints`` are the storage instances that the task knows.
    """

    target: Target
    stages: tuple[bytes, ...]
    endpoints: tuple[str, ...]
