"""Leader epochs as clients see them.

They count the owners behind the gateway, which routes by itself: a client's idea of the leader cannot be stale in a way
that matters. So Metadata tells none, and none that a client sends back is checked. A number instead would do harm:
the Java client stops fetching when a batch shows a later epoch than its metadata, and librdkafka sends 0 where Metadata
told none, which a check would refuse.
"""

UNKNOWN_EPOCH = -1
"""Kafka's "no epoch" in Metadata."""
UNCHECKED_EPOCH = -1
"""Tells storage not to compare."""
