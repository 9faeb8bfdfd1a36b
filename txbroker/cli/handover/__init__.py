"""`txbroker import` and `export`: log directories that go from Apache Kafka with ZooKeeper to txbroker, and back."""
