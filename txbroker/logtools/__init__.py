"""Offline tools for log directories of txbroker and Apache Kafka, with all record formats."""
