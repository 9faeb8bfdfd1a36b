"""What the garbage collector leaves out, and finds later."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from txbroker.garbage_collection import REPLICAS_MIN, GarbageCollection


class Knot:
    """An object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collection() -> Iterator[GarbageCollection]:
    threshold = gc.get_threshold()
    collection = GarbageCollection()
    collection.begin()
    assert not gc.isenabled()
    collection.started()
    assert gc.isenabled() and gc.get_freeze_count() > 0
    gc.unfreeze()
    yield collection
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_what_partitions_add_is_left_out_until_they_are_gone(collection: GarbageCollection) -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    collection.replicas_changed(REPLICAS_MIN)
    assert gc.get_freeze_count() == 0, "so few do not count"
    collection.replicas_changed(10 * REPLICAS_MIN)
    assert gc.get_freeze_count() > 0
    del knot
    gc.collect()
    assert gone() is not None
    collection.replicas_changed(6 * REPLICAS_MIN)
    assert gone() is not None
    collection.replicas_changed(4 * REPLICAS_MIN)
    assert gone() is None and gc.get_freeze_count() > 0


def test_it_is_not_frozen_again_for_a_few_more_partitions(collection: GarbageCollection) -> None:
    collection.replicas_changed(10 * REPLICAS_MIN)
    gc.unfreeze()
    collection.replicas_changed(11 * REPLICAS_MIN)
    assert gc.get_freeze_count() == 0
    collection.replicas_changed(12 * REPLICAS_MIN)
    assert gc.get_freeze_count() > 0


def test_garbage_is_not_left_out(collection: GarbageCollection) -> None:
    """Topics that are created leave cycles behind, such as those of Deferreds and exceptions."""
    kept, garbage = Knot(), Knot()
    left, gone = weakref.ref(kept), weakref.ref(garbage)
    del garbage
    collection.replicas_changed(10 * REPLICAS_MIN)
    assert gone() is None and gc.get_freeze_count() > 0
    assert left() is kept
