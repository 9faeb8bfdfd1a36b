"""`txbroker log`: look at, repair and read log directories, ours and Apache Kafka's, without a broker."""
