"""Jobs on Apache Spark, which read topics with Spark's own Kafka source. PySpark, an extra, is imported in functions only."""
