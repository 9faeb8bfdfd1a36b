"""Benchmarks: the same load against txbroker and Apache Kafka, turn about, in one run."""
