"""The classic consumer group protocol and the offsets that groups commit, kept in `__consumer_offsets` as Kafka keeps them."""
