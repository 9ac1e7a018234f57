"""The records of topics, which the console reads and writes by Kafka's protocol, with the rights of its users."""
