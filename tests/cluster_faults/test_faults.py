"""The short form of `make chaos`: faults of each sort under load, and the check of the clients' histories and of the replicas' bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.cache import CHECKOUT

pytestmark = pytest.mark.process


@pytest.mark.parametrize("plan", [
    "kill_leader,pause_controller,cut_broker_from_all,fill_disk+kill_zookeeper",
])
def test_no_anomaly(plan: str) -> None:
    """As people run it: it needs namespaces of its own. Where the machine does not allow these, the plan has only faults of processes."""
    command = [sys.executable, "-m", "tests.cluster_faults", "--plan", plan]
    ended = subprocess.run(command, cwd=CHECKOUT, env=os.environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
