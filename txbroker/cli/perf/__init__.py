"""`txbroker perf-produce` and `perf-consume`: loads of Kafka's perf tools, on record batches that are made and counted here."""
