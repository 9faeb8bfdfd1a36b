"""Benchmarks of the data pipeline: loads and upserts with Spark, and the mirror."""
