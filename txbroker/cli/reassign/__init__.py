"""`txbroker reassign-partitions`: moves replicas between brokers, and between the log directories of a broker."""
