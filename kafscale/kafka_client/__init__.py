"""A small Kafka client, for the commands and pages that read and write records."""
