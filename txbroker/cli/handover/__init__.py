"""`txbroker import` and `export`: hand log directories over from Apache Kafka with ZooKeeper to txbroker, and back."""
