"""What the coordinators of groups and of transactions share: the partitions of an internal topic as shards of their state."""
