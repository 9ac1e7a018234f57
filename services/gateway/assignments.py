"""Replica assignments that clients make by hand: there are no replicas to place, but their shape is checked."""

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from services.gateway.kafka_errors import RefusedPart


def check_replicas(replicas: Sequence[Sequence[int]]) -> None:
    """``replicas``: of each partition, the brokers that it is assigned to. Raises RefusedPart."""
    sizes = {len(brokers) for brokers in replicas}
    if 0 in sizes or len(sizes) > 1:
        raise RefusedPart(
            ErrorCode.invalid_replica_assignment, "All partitions must have the same number of replicas, at least one."
        )
    if any(len(set(brokers)) != len(brokers) for brokers in replicas):
        raise RefusedPart(ErrorCode.invalid_replica_assignment, "A broker is assigned twice to one partition.")
