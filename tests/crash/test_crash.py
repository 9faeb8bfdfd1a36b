"""The short form of `make crash`: a few kills, with and without damaged files, with a new seed each time."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.crash.rounds import CrashTest, Plan

pytestmark = pytest.mark.process


@pytest.mark.parametrize("damage", [pytest.param(False, id="kill"), pytest.param(True, id="kill-and-damage")])
def test_nothing_acknowledged_is_lost(tmp_path: Path, damage: bool) -> None:
    plan = Plan(secrets.token_hex(4), rounds=3, damage=damage, load_s=(0.1, 0.6))
    print(f"to run this again: python -m tests.crash --seed {plan.seed}")
    CrashTest(tmp_path, plan).run()
