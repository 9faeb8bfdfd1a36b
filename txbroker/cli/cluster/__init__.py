"""`txbroker cluster`: a ZooKeeper and several brokers as processes of one machine, and what they do."""
