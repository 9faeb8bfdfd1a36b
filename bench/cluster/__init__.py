"""Three brokers of txbroker beside three of Apache Kafka 3.9, each cluster on a ZooKeeper of its own, measured in turn."""
