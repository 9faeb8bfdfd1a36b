"""`txbroker transactions` (Kafka's kafka-transactions)."""
