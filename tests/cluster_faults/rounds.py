"""A fault test: load, one fault after the other, each followed by progress, and the comparison of everything at the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from tests.cluster_faults.faults import Fault
from tests.cluster_faults.load import TOPIC, Load, compare_files
from tests.support.cluster import Cluster

# Replicas are compared byte for byte, and the cleaner of each broker works at times of its own.
OVERRIDES = {"log.cleaner.enable": "false"}


def run(cluster: Cluster, faults: Iterable[Fault], chance: random.Random, say: Callable[[str], None] = print) -> None:
    """Run the faults on a cluster that has started, and stop it. Lost, or AssertionError when the cluster does not recover."""
    load = Load(cluster)
    try:
        load.start()
        for fault in faults:
            started_s = time.monotonic()
            done = fault(cluster, chance)
            cluster.until_in_sync(TOPIC)
            load.wait_for_progress()
            say(f"{done} ({time.monotonic() - started_s:.1f} s)")
        say(load.finish())
    finally:
        load.abandon()
    cluster.stop()
    say(compare_files(cluster))
