"""Kafka's log on disk: segments, indexes, validation, recovery, retention, producer state, log directories."""
