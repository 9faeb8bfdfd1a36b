"""Keys of the metrics port, which Kafka does not have: its metrics are served by an agent for JMX."""

from __future__ import annotations

from txbroker.config.checks import at_least, between
from txbroker.config.keys import Importance, Key, Type

KEYS = (
    Key("txbroker.metrics.port", Type.INT, -1, Importance.MEDIUM,
        "HTTP port of /metrics, /healthz and /readyz; 0 is any free port, -1 disables it.", between(-1, 65_535)),
    Key("txbroker.metrics.host", Type.STRING, "127.0.0.1", Importance.MEDIUM,
        "Address that the metrics port is bound to; 0.0.0.0 is all addresses. The port has no authentication."),
    Key("txbroker.metrics.host.names", Type.LIST, (), Importance.LOW,
        "Names of the metrics port in Host headers, besides localhost and addresses. Without them a port on this machine has no other"
        " name, and one that is open to other machines has any."),
    Key("txbroker.metrics.labels.max", Type.INT, 10_000, Importance.LOW,
        "Maximum number of topics, of partitions, of groups and of committed offsets in the metrics; txbroker_metrics_left_out counts the"
        " others.",
        at_least(0)),
)
