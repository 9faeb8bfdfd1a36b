"""The dump of log files, as Kafka's kafka-dump-log prints them (class DumpLogSegments)."""
