"""A Kafka client for the commands that read and write records."""
