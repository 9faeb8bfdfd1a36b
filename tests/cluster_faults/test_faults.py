"""The short form of `make crash-cluster`: each fault once, under load, and the comparison of everything that was acknowledged."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable

import pytest

from tests.cluster_faults import faults
from tests.cluster_faults.rounds import OVERRIDES, run
from tests.support.cluster import Cluster


@pytest.mark.parametrize("planned", [
    pytest.param((faults.kill_leader, faults.kill_follower, faults.kill_controller), id="killed"),
    pytest.param((faults.pause, faults.stop, faults.rolling_restart), id="paused-and-stopped"),
])
def test_nothing_acknowledged_is_lost(start_cluster: Callable[..., Cluster], planned: tuple[faults.Fault, ...]) -> None:
    seed = secrets.token_hex(4)
    print(f"to run this again: random.Random({seed!r})")
    run(start_cluster(OVERRIDES), planned, random.Random(seed))
