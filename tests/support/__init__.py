"""What the tests share: broker processes, the Java around Apache Kafka, sample data, a raw connection."""
