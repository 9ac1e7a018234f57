"""Where the Kafka listeners of a cluster are."""

from collections.abc import Iterable

from kafscale.config.listeners import parse_address
from kafscale.kafka_client.connection import Address
from kafscale.v1 import admin_pb2 as pb


def reported_listeners(members: Iterable[pb.ClusterMember]) -> list[Address]:
    """Return the first listener of each gateway that is not leaving, as the Admin service reports the members."""
    firsts = [each.listeners[0] for each in members if each.listeners and not each.leaving]
    return [parse_address("", listener.partition("://")[2]) for listener in firsts]
