"""Log directories that go from Apache Kafka to txbroker and back; `python -m tests.handover` is the long form of what both cleaners do."""
