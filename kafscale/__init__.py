"""KafScale: a Kafka-protocol streaming system whose log is immutable segments in object storage."""
