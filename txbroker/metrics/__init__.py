"""The metrics port: the broker's metrics in Prometheus' formats, with the names that Kafka's JMX exporter uses.

Only `endpoint.py` is imported by other packages, and only if a port is configured: importing prometheus-client and Twisted's HTTP takes
longer than the rest of a start. Other packages count in plain numbers, which are read at each scrape.
"""
