"""The classic consumer group protocol and committed offsets, stored in `__consumer_offsets` in Kafka's format."""
