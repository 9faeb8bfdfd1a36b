"""confluent-kafka's driver."""
