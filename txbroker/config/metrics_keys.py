"""Keys of the metrics port. They are this broker's own: Kafka has its metrics in JMX, and an agent of their own serves them."""

from __future__ import annotations

from txbroker.config.checks import at_least, between
from txbroker.config.keys import Importance, Key, Type

KEYS = (
    Key("txbroker.metrics.port", Type.INT, -1, Importance.MEDIUM,
        "The port that serves /metrics, /healthz and /readyz over HTTP; 0 is any free port, -1 opens none.", between(-1, 65_535)),
    Key("txbroker.metrics.host", Type.STRING, "127.0.0.1", Importance.MEDIUM,
        "The address that the metrics port is bound to; 0.0.0.0 lets other machines in. Nobody is asked who they are."),
    Key("txbroker.metrics.labels.max", Type.INT, 10_000, Importance.LOW,
        "How many topics, partitions, groups and committed offsets the metrics tell; txbroker_metrics_left_out counts the others.",
        at_least(0)),
)
