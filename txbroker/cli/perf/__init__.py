"""`txbroker perf-produce` and `perf-consume`: the loads of Kafka's perf tools, without a client library in between."""
