"""`txbroker mirror`: copies topics from one cluster to another."""
