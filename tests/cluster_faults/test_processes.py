"""The short form of `python -m tests.cluster_faults.processes`: the server of the metadata, then all processes, are killed under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster_faults.processes import ProcessCluster, run

pytestmark = pytest.mark.process


def test_no_anomaly(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path, 2)
    try:
        names = cluster.names()
        run(cluster, [names[:1], names], full=False)
    finally:
        cluster.close()
