"""Log directories that go from Apache Kafka to txbroker and back. `python -m tests.handover` compares both log cleaners."""
