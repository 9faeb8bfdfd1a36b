"""The log cleaner: compaction of the closed segments of a log (Kafka's LogCleaner; KIP-280, KIP-534)."""
