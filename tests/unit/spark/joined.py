"""Merges the ranges of tasks, so that tests need not depend on how they are divided."""

from collections.abc import Iterable

from pyspark.sql.datasource import InputPartition

from kafscale_spark.edges import TopicPartition
from kafscale_spark.planning import Split


def joined(tasks: Iterable[InputPartition]) -> list[tuple[TopicPartition, int, int]]:
    """Return partitions with start and end offsets; adjacent ranges are merged."""
    found: list[tuple[TopicPartition, int, int]] = []
    for task in tasks:
        assert isinstance(task, Split)
        for part in task.ranges:
            start = part.start
            if found and found[-1][0] == part.partition and found[-1][2] == start:
                _, start, _ = found.pop()
            found.append((part.partition, start, part.end))
    return found
