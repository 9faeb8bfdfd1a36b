"""Log directories looked at, repaired and read without a broker: ours and Apache Kafka's, of any record format."""
