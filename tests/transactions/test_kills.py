"""kill -9 in a transaction: the short forms of `make crash-transactions`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transactions.cluster_kill_rounds import ClusterKillRounds, Kill
from tests.transactions.kill_rounds import MARKERS, KillRounds

pytestmark = pytest.mark.process


def test_every_transaction_ends_as_a_whole_after_kill_9(tmp_path: Path) -> None:
    KillRounds(tmp_path).run([("ONGOING", "after", 2), ("PREPARE_COMMIT", "after", 1), (MARKERS, "after", 1), ("PREPARE_ABORT", "after", 1),
                              ("COMPLETE_COMMIT", "before", 1)])


def test_every_transaction_ends_as_a_whole_after_kill_9_of_brokers_of_a_cluster(tmp_path: Path) -> None:
    """The coordinator, the leader of a partition that writes its marker, and others."""
    ClusterKillRounds(tmp_path).run([Kill("PREPARE_COMMIT", "after", 0), Kill(MARKERS, "before", 0), Kill("ONGOING", "after", 1),
                                     Kill("PREPARE_ABORT", "before", 2)])  # fmt: skip
