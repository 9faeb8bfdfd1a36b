"""The short form of `make damage`: every file in every way, once, with a new seed each time."""

from __future__ import annotations

import secrets

import pytest

from simulation.memory_disk import MemoryDisk
from tests.damage.sweep import DAMAGES, Damage, Rows, make_template, sweep, unreadable
from tests.support.fakes.disk_path import DiskPath


@pytest.fixture(scope="module")
def template() -> tuple[DiskPath, Rows]:
    root = DiskPath(MemoryDisk(), "/template").made()
    return root, make_template(root)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_before_a_start(template: tuple[DiskPath, Rows], directory: DiskPath, damage: Damage, clean: bool) -> None:
    root, written = template
    seed = secrets.token_hex(4)
    print(f"seed {seed}")
    outcomes = sweep(root, written, directory, damage, clean=clean, seed=seed)
    print(outcomes)
    assert len(outcomes) > 14
    assert ("offline" in outcomes.values()) == (damage is unreadable)
