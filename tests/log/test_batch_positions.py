"""BatchPositions: a known position is the one that a search finds."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.support import append, open_log
from tests.support import compiled
from tests.support.fakes.disk_path import DiskPath
from txbroker.log import batch_positions

every_module = pytest.mark.parametrize("module", compiled.forms(batch_positions), ids=lambda module: module.__name__)

# Batches with gaps between them, as after compaction: (gap before, records).
BATCHES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=30)


def laid_out(batches: list[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    made, offset, position = [], 0, 0
    for gap, records in batches:
        first = offset + gap
        offset = first + records
        made.append((first, offset - 1, position, 10 * records))
        position += 10 * records
    return made


@every_module
@given(batches=BATCHES, data=st.data())
def test_known_positions_are_correct(module: ModuleType, batches: list[tuple[int, int]], data: st.DataObject) -> None:
    all_places = laid_out(batches)
    end = all_places[-1][1]
    written = data.draw(st.integers(0, len(all_places)))
    known = module.BatchPositions()
    offsets = st.integers(0, all_places[written - 1][1]) if written else st.nothing()
    for offset in data.draw(st.lists(offsets, max_size=40 if written else 0)):
        first, last, position, size = next(place for place in all_places if place[1] >= offset)
        if known.get(offset) is None:
            known.looked_up(min(offset, first), last, position, size)
        assert known.get(offset) == (position, size)
    for place in all_places[written:]:
        known.written(*place)
    for offset in range(end + 1):
        right = next(place for place in all_places if place[1] >= offset)
        assert known.get(offset) in (None, right[2:])
    for place in all_places[written:]:
        assert known.get(place[0]) == known.get(place[1]) == place[2:]
    assert known.get(end + 1) is None
    known.clear()
    assert known.get(end) is None


@every_module
def test_more_positions_of_look_ups_than_of_appends_are_kept(module: ModuleType) -> None:
    known = module.BatchPositions()
    for offset in range(10_000):
        known.written(offset, offset, offset * 100, 100)
    found = [known.get(offset) for offset in range(10_000)]
    assert module.WRITTEN_MAX // 2 <= sum(place is not None for place in found) <= module.WRITTEN_MAX
    assert found[-1] == (999_900, 100)
    for offset in reversed(range(9_000)):
        known.looked_up(offset, offset, offset * 100, 100)
    kept = sum(known.get(offset) is not None for offset in range(10_000))
    assert module.LOOKED_UP_MAX // 2 <= kept <= module.LOOKED_UP_MAX
    assert known.get(0) == (0, 100)


@every_module
def test_large_positions_are_kept(module: ModuleType) -> None:
    known = module.BatchPositions()
    known.written(2**40, 2**40 + 5, 2**31 - 1, 2**31 - 2)
    assert known.get(2**40 + 3) == (2**31 - 1, 2**31 - 2)


def test_every_record_of_a_batch_is_found_at_its_position(directory: DiskPath) -> None:
    log = open_log(directory)
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    segment = log.segments[0]
    assert segment.locate(0) == segment.locate(2) != segment.locate(3)
    assert segment.locate(4) is None
    log.close()
