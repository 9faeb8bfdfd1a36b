"""The driver of Apache Kafka's command line tools."""
