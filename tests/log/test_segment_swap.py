"""The steps around a swap of segments: a directory that is gone meanwhile is no error, and what was undone or ended does not come back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from simulation.memory_disk import MemoryDisk
from txbroker.errors import MissingFile
from txbroker.log.segment_swap import SWAP_MARK, SegmentSwap, settle, undo

DIRECTORY, LOG, LATER = "/data/orders-0", "/data/orders-0/00000000000000000000.log", "/data/orders-0/00000000000000000010.log"


def swap_of(disk: MemoryDisk) -> SegmentSwap:
    """A swap of two segments for one, which the cleaner has written and synced."""
    disk.make_directory(DIRECTORY)
    disk.write(LOG, b"old")
    disk.write(LATER, b"later")
    disk.write(f"{LOG}.cleaned", b"new")
    for path in (LOG, LATER, f"{LOG}.cleaned", DIRECTORY, "/data", "/"):
        disk.sync(path)
    return SegmentSwap(disk, DIRECTORY, 0, 20)


def finish(swap: SegmentSwap) -> None:
    swap._disk.remove(LATER)
    swap.take_names()
    swap.end()


@pytest.mark.parametrize("what", [SegmentSwap.sync, SegmentSwap.end, lambda swap: undo(swap._disk, swap.directory)])
def test_a_directory_that_is_gone_is_no_error(what: Callable[[SegmentSwap], None]) -> None:
    disk = MemoryDisk()
    swap = swap_of(disk)
    swap.begin()
    disk.remove_tree(DIRECTORY)
    what(swap)
    assert not disk.is_directory(DIRECTORY)


def test_a_mark_that_is_gone_from_its_directory_is_an_error() -> None:
    disk = MemoryDisk()
    swap = swap_of(disk)
    swap.begin()
    disk.remove(f"{DIRECTORY}/{SWAP_MARK}")
    with pytest.raises(MissingFile):
        swap.sync()


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize(("is_undone", "content"), [(True, b"old"), (False, b"new")])
def test_a_loss_of_power_after_the_end_brings_nothing_back(is_undone: bool, content: bytes, seed: int) -> None:
    disk = MemoryDisk()
    swap = swap_of(disk)
    swap.begin()
    swap.sync()
    if is_undone:
        undo(disk, DIRECTORY)
    else:
        finish(swap)
    disk.power_cut(Random(seed))
    settle(disk, DIRECTORY)
    assert disk.size(f"{DIRECTORY}/{SWAP_MARK}") is None
    assert disk.read(LOG) == content
    assert (disk.read(LATER) == b"later") == is_undone
