"""Benchmarks: the same load on txbroker and Apache Kafka, in turn, in one run."""
