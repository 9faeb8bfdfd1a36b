"""For partitions whose followers do not matter in a test: their brokers are alive, and no time passes."""

from __future__ import annotations

from txbroker.cluster.partition import Replication

ALL_ALIVE = Replication(lambda: 0.0, lambda: 10.0, lambda replica, broker_epoch: True)
