"""A ZooKeeper for brokers whose edges fail."""

from __future__ import annotations

from tests.cluster.conftest import zookeeper, zookeeper_process

__all__ = ["zookeeper", "zookeeper_process"]
