"""Spark's Kafka source and sink."""
