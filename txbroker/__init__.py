"""txbroker: a broker that speaks Kafka's wire protocol, on Twisted."""

__version__ = "0.1.0"
