"""Shared by all tests: broker processes, Apache Kafka and its tools, sample data, raw connections, fakes."""
