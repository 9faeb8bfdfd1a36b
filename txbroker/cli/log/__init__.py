"""`txbroker log`: verify, repair and read the log directories of txbroker and of Apache Kafka, without a broker."""
