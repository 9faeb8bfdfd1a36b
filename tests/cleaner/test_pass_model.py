"""Passes on generated logs leave the same records and batches as the reference."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.cleaner.logs import NOW, RETENTION, LogMaker, run, swap
from tests.cleaner.reference import Reference, content_of, parse
from tests.support.examples import examples
from txbroker.log.cleaner.cleaning_job import CleaningJob, Done, SegmentSpan, Strategy
from txbroker.log.cleaner.offset_map import OffsetMap
from txbroker.log.txn_index import ENTRY
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record

# Small logs, so that a failing example can be read.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)

KEYS = [b"a", b"b", b"some longer key, of more than sixteen bytes", b"", b"k" * 8, b"K" * 700, b"\0", b"\0\0"]

keys = st.sampled_from(KEYS)
values = st.one_of(st.none(), st.binary(max_size=30), st.just(b"long" * 40), st.just(b"x" * 9000))
times = st.one_of(st.integers(NOW - 20_000, NOW), st.just(0), st.just(-1), st.just(2**41))
version_headers = st.lists(
    st.tuples(st.sampled_from(["version", "other"]),
              st.one_of(st.none(), st.binary(max_size=9), st.integers(-3, 3).map(lambda n: n.to_bytes(8, "big", signed=True)))),
    max_size=2).map(tuple)
records = st.lists(st.tuples(st.one_of(keys, keys, keys, keys, st.none()), values, times), min_size=1, max_size=12)
codecs = st.sampled_from(Codec)


@st.composite
def logs(draw: st.DrawFn, *, old_formats: bool = True) -> LogMaker:
    log = LogMaker()
    if old_formats and draw(st.booleans()):
        for _ in range(draw(st.integers(1, 4))):
            magic = draw(st.sampled_from([0, 1]))
            codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]))
            append_time = draw(st.sampled_from([None, None, NOW - 7])) if magic else None
            log.old(draw(records), magic=magic, codec=codec, log_append_time=append_time)
            if draw(st.integers(0, 3)) == 0:
                log.roll()
    for _ in range(draw(st.integers(1, 14))):
        match draw(st.integers(0, 9)):
            case 0:
                log.roll()
            case 1 | 2:
                log.end(draw(st.integers(1, 3)), committed=draw(st.booleans()), timestamp=draw(times))
            case 3 | 4 | 5:
                log.data(draw(records), producer_id=draw(st.integers(1, 3)), transactional=draw(st.booleans()), codec=draw(codecs))
            case _:
                many = draw(st.booleans())
                some = draw(records) * (draw(st.integers(1, 8)) if many else 1)
                headers = [draw(version_headers) for _ in range(3)]
                log.data(some, codec=draw(codecs), gap=draw(st.integers(0, 3)), headers_of=lambda n, h=headers: h[n % 3],
                         log_append_time=draw(st.sampled_from([None, None, NOW - 9])))
    for made in log.segments:
        made.modified_ms = NOW - draw(st.sampled_from([0, 500, 5000]))
    return log


def read_back(job: CleaningJob) -> list[bytes]:
    directory = Path(job.directory)
    return [(directory / f"{span.base_offset:020d}.log").read_bytes() for span in job.segments]


def check(job: CleaningJob, log: LogMaker, *, make_map: Callable[..., OffsetMap] = OffsetMap) -> int:
    """Run a pass, compare it with the reference, swap its files in; the end of its map."""
    directory = Path(job.directory)
    files = read_back(job)
    result = run(job, make_map=make_map)
    assert isinstance(result.end, Done), result.end
    reference = Reference(job, files, log.aborted)
    reference.build_map(result.mapped.end_offset if result.mapped.end_offset < reference.end else None)
    assert result.mapped.end_offset == reference.end == result.end.end_offset
    expected = dict(zip((span.base_offset for span in job.segments), reference.left(), strict=True))
    originals = {raw for content in files for _, _, raw in parse(content)}
    index = []
    for group in result.groups:
        left = [one for base in group.old_base_offsets for one in expected[base]]
        assert content_of(result.contents[group.new_base_offset], originals) == left
        assert group.size == len(result.contents[group.new_base_offset])
        stamps = [one.max_timestamp for one in left]
        assert group.max_timestamp == max([-1, *stamps])
        for base, tally in zip(group.old_base_offsets, group.yields, strict=True):
            before = sum(len(records) for span, content in zip(job.segments, files, strict=True) if span.base_offset == base
                         for _, records, _ in parse(content))
            assert tally.records_before == before
            assert tally.records_after == sum(len(one.records) for one in expected[base])
        assert sum(tally.bytes_after for tally in group.yields) == group.size
        path = directory / f"{group.new_base_offset:020d}.txnindex.cleaned"
        index += [fields[1:] for fields in ENTRY.iter_unpack(path.read_bytes())] if path.exists() else []
    assert index == [tuple(entry) for entry in reference.index]
    assert sum(len(group.old_base_offsets) for group in result.groups) == sum(span.base_offset < reference.end for span in job.segments)
    swap(directory, result)
    return result.end.end_offset


def with_segments_now(job: CleaningJob, log: LogMaker) -> CleaningJob:
    """The job for the segments after the last pass."""
    bases = sorted(int(path.stem) for path in Path(job.directory).glob("*.log"))
    ends = [*bases[1:], log.next_offset]
    modified = {made.base_offset: made.modified_ms for made in log.segments}
    spans = [SegmentSpan(base, end, (Path(job.directory) / f"{base:020d}.log").stat().st_size, modified[base])
             for base, end in zip(bases, ends, strict=True)]
    return replace(job, segments=tuple(span for span in spans if span.base_offset < job.first_uncleanable_offset))


@settings(max_examples=examples(60), phases=PHASES)
@given(log=logs(), data=st.data())
def test_a_pass_leaves_what_the_reference_leaves(log: LogMaker, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        log.write(directory)
        chosen = data.draw(st.sampled_from(Strategy))
        uncleanable = min(log.last_stable_offset, data.draw(st.sampled_from([made.base_offset for made in log.segments] + [2**60])))
        if uncleanable == 0:
            return
        job = log.job(directory, strategy=chosen, header="version", first_uncleanable_offset=uncleanable,
                      segment_bytes=data.draw(st.sampled_from([1, 3000, 1 << 30])))
        # A pass over the first part, one over everything, and one after the delete horizons.
        job = replace(job, seed=data.draw(st.integers(0, 2**64)), producers=data.draw(st.sampled_from([job.producers, ()])))
        middle = data.draw(st.integers(0, uncleanable))
        dirty = 0
        if 0 < middle < uncleanable:
            dirty = check(with_segments_now(replace(job, first_uncleanable_offset=middle), log), log)
        end = check(with_segments_now(replace(job, first_dirty_offset=dirty), log), log)
        after = replace(job, now_ms=NOW + RETENTION + 1, first_dirty_offset=end)
        check(with_segments_now(after, log), log)
        check(with_segments_now(after, log), log)


@settings(max_examples=examples(40), phases=PHASES)
@given(log=logs(old_formats=False), bits=st.integers(0, 3), probes=st.integers(1, 4), data=st.data())
def test_keys_without_a_slot_are_cleaned_by_the_next_pass_and_not_lost(log: LogMaker, bits: int, probes: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        log.write(directory)
        job = log.job(directory, map_bytes=data.draw(st.sampled_from([24 * 4, 24 * 40])), load_factor=1.0)
        if job.first_uncleanable_offset == 0:
            return
        make_map = partial(OffsetMap, position_bits=bits, probes_max=probes)
        dirty, passes = 0, 0
        while dirty < job.first_uncleanable_offset:
            end = check(with_segments_now(replace(job, first_dirty_offset=dirty, seed=passes), log), log, make_map=make_map)
            assert end > dirty
            dirty, passes = end, passes + 1
        # Many small passes leave the same as one: the latest record of each key, except for tombstones.
        survivors: dict[bytes | None, list[Record]] = {}
        for content in read_back(with_segments_now(job, log)):
            for header, found, _ in parse(content):
                if not header.control and header.last_offset < job.first_uncleanable_offset:
                    for record in found:
                        survivors.setdefault(record.key, []).append(record)
        assert None not in survivors
        assert all(len(found) == 1 for found in survivors.values())


pytestmark = pytest.mark.filterwarnings("error")
