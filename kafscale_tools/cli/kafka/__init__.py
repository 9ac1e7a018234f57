"""Records in and out of a cluster, by Kafka's protocol."""
