"""Validates manual replica assignments as Kafka does, although there are no replicas to place."""

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from services.gateway.brokers import BrokerList
from services.gateway.owners.errors import RefusedPart


def check_replicas(replicas: Sequence[Sequence[int]], brokers: BrokerList) -> None:
    """Raise RefusedPart unless the assignment is valid. ``replicas`` holds the assigned brokers of each partition."""
    known = {broker.node_id for broker in brokers.brokers}
    for assigned in replicas:
        if not assigned:
            raise _refused("an empty replica list.")
        for before, broker in zip((None, *sorted(assigned)), sorted(assigned), strict=False):
            if broker not in known:
                raise _refused(f"broker {broker}, but no such broker is registered.")
            if broker == before:
                raise _refused(f"the broker {broker} more than once.")
        if len(assigned) != len(replicas[0]):
            raise _refused(
                f"a partition with {len(assigned)} replica(s), but this is not consistent with previous partitions, "
                f"which have {len(replicas[0])} replica(s)."
            )


def _refused(problem: str) -> RefusedPart:
    message = f"The manual partition assignment includes {problem}"
    return RefusedPart(ErrorCode.invalid_replica_assignment, message)
