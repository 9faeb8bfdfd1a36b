"""Loads on a standalone master with two workers, of which something is killed: the short form of `make crash-spark`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.spark.crash import CrashTest
from tests.spark.standalone import standalone
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.process


@pytest.mark.usefixtures("spark_jars")
def test_loads_on_a_cluster_with_kills(tmp_path: Path) -> None:
    """An executor while the load reads, which does not end the load; and the driver between two steps."""
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    try:
        with standalone(tmp_path / "cluster") as cluster:
            delta = CrashTest(broker, cluster, tmp_path / "delta", "delta", random.Random(1))
            assert "an executor was killed, and the load finished, " in delta.round("executor", 0)
            parquet = CrashTest(broker, cluster, tmp_path / "parquet", "parquet", random.Random(2))
            assert "the driver was killed" in parquet.round("committed")
            parquet.complete()
    finally:
        broker.close()
