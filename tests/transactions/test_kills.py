"""kill -9 in a transaction: the short form of `make crash-transactions`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transactions.kill_rounds import MARKERS, KillRounds

pytestmark = pytest.mark.process


def test_every_transaction_ends_as_a_whole_after_kill_9(tmp_path: Path) -> None:
    KillRounds(tmp_path).run([("ONGOING", "after", 2), ("PREPARE_COMMIT", "after", 1), (MARKERS, "after", 1), ("PREPARE_ABORT", "after", 1),
                              ("COMPLETE_COMMIT", "before", 1)])
