"""The log cleaner: what compaction of a log's closed segments is (Kafka's LogCleaner; KIP-280, KIP-534)."""
