"""Import of the metadata of a Kafka cluster with ZooKeeper, and the export back."""
