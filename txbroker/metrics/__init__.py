"""The metrics port: what the broker counts and keeps, told in Prometheus' formats under the names that Kafka's JMX exporter gives.

Only `endpoint.py` is imported by others, and only when a port is configured: what it imports in turn (prometheus-client, Twisted's HTTP)
takes longer than the rest of a start. Rooms know nothing of it: they count in plain numbers, and these are read when somebody asks.
"""
