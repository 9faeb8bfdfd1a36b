"""What the picture of `log stats --plot` shows: which partitions have a bar, and how records are counted by time."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from random import Random

import pytest

from txbroker.cli.log.plot import BUCKETS_MAX, ROWS_MAX, TIME_MAX_MS, TimeBuckets, draw, rows_of
from txbroker.logtools.partition_stats import CodecStats, PartitionStats, SegmentStats
from txbroker.names import TopicPartition

DAY_MS = 24 * 3600 * 1000
NOW = 1_700_000_000_000


def partition(topic: str, number: int, size: int) -> PartitionStats:
    return PartitionStats(TopicPartition(topic, number), segments=[SegmentStats(0, size, 0)])


def test_the_largest_partitions_have_bars_and_small_and_internal_ones_share_one() -> None:
    large = [partition("orders", number, 1000 + number) for number in range(3)]
    small = [partition("small", number, 1) for number in range(5)]
    internal = [partition("__consumer_offsets", number, 5000) for number in range(50)]
    *singles, others = rows_of([*internal, *large, *small])
    assert [row.name for row in singles] == ["orders-2", "orders-1", "orders-0"]
    assert (others.name, len(others.partitions), others.is_single) == ("55 others", 55, False)
    assert others.total(lambda stats: stats.size) == 50 * 5000 + 5


def test_bars_are_limited_and_one_small_partition_keeps_its_name() -> None:
    rows = rows_of([partition("t", number, 100) for number in range(40)])
    assert len(rows) == ROWS_MAX + 1
    assert rows[-1].name == f"{40 - ROWS_MAX} others"
    assert [row.name for row in rows_of([partition("t", 0, 10_000), partition("t", 1, 1)])] == ["t-0", "t-1"]


def test_internal_partitions_have_bars_when_there_are_no_others() -> None:
    assert [row.name for row in rows_of([partition("__consumer_offsets", number, 0) for number in range(2)])] == [
        "__consumer_offsets-0", "__consumer_offsets-1",
    ]  # fmt: skip
    assert rows_of([]) == []


@pytest.mark.parametrize("span_ms", [0, 1, 5000, DAY_MS, 400 * DAY_MS, NOW])
def test_each_record_is_counted_in_the_time_buckets(span_ms: int) -> None:
    chance = Random(span_ms)
    some = [partition("t", number, 1) for number in range(3)]
    times: list[int] = []
    for stats in some:
        for _ in range(500):
            times.append(NOW - chance.randrange(span_ms + 1))
            stats.times.add(times[-1])
    buckets = TimeBuckets(some)
    assert 3 <= buckets.count <= BUCKETS_MAX + 3
    counts = [sum(each) for each in zip(*(buckets.counts([stats]) for stats in some), strict=True)]
    assert sum(counts) == pytest.approx(len(times))
    assert counts[0] == 0, "the first one is empty"
    starts = [start.timestamp() * 1000 for start in buckets.starts]
    assert starts[0] <= min(times) and max(times) < starts[-1] + (starts[-1] - starts[-2])


LONG = "shipping-of-packages.by-region-and-carrier.corrected.version-2"


@pytest.mark.parametrize(
    ("topics", "size", "records", "span_ms", "bits"),
    [
        ([LONG, "orders"], 3_000_000_000, 2_000_000, 40 * DAY_MS, range(8, 28)),
        ([LONG * 3, LONG], 100, 1, 5000, range(7)),
        (["a"], 999_999, 123_456_789, 400 * DAY_MS, range(6, 14)),
    ],
)
def test_no_labels_overlap(topics: list[str], size: int, records: int, span_ms: int, bits: range) -> None:
    pytest.importorskip("matplotlib")
    some = []
    for number in range(8):
        for topic in topics:
            stats = partition(topic, number, size + number)
            stats.records, stats.keyless = records, records // 7
            stats.codecs = {name: CodecStats(1, size, size * 4) for name in ("none", "gzip", "snappy", "lz4", "zstd")}
            stats.batch_sizes, stats.batch_records = Counter(bits), Counter(bits)
            for back in range(0, span_ms, span_ms // 50):
                stats.times.add(NOW - back)
            some.append(stats)
    figure = draw(some, "/data", datetime(2026, 1, 1, tzinfo=UTC))
    figure.draw_without_rendering()
    columns = [axes.get_window_extent().x0 for axes in figure.axes]
    for axes in figure.axes:
        for labels, edges in ((axes.get_xticklabels(), "x"), (axes.get_yticklabels(), "y")):
            shown = [label for label in labels if label.get_text() and label.get_visible() and not label.get_rotation()]
            boxes = sorted((getattr(box, f"{edges}0"), getattr(box, f"{edges}1")) for box in (each.get_window_extent() for each in shown))
            texts = [label.get_text() for label in shown]
            assert all(one[1] < other[0] for one, other in pairwise(boxes)), f"{axes.get_title(loc='left')}: {texts}"
        # A turned label needs its height, and the legend must not reach the title of the next panel.
        turned = [label for label in axes.get_xticklabels() if label.get_rotation()]
        if turned:
            step = axes.get_window_extent().width / len(axes.get_xticks())
            assert step > 1.3 * turned[0].get_fontsize() * figure.dpi / 72
        legend = axes.get_legend()
        if legend is not None:
            assert legend.get_window_extent().x1 < min((x for x in columns if x > axes.get_window_extent().x1), default=figure.bbox.x1)
        assert axes.get_window_extent().width > figure.bbox.width / 6, "the labels leave room for the panel"


@pytest.mark.filterwarnings("error")
def test_every_span_of_time_has_a_few_dates() -> None:
    pytest.importorskip("matplotlib")
    span_ms = 100
    while span_ms < 20_000 * DAY_MS:
        stats = partition("t", 0, 1)
        for back in range(20):
            stats.times.add(NOW - back * span_ms // 19)
        figure = draw([stats], "/data", datetime(2026, 1, 1, tzinfo=UTC))
        (axes,) = (each for each in figure.axes if each.get_title(loc="left").startswith("Records by timestamp"))
        assert 2 <= len(axes.get_xticks()) <= 9, span_ms
        span_ms = span_ms * 13 // 10


def test_impossible_timestamps_are_left_out() -> None:
    stats = partition("t", 0, 1)
    for timestamp in (NOW, 2**62):
        stats.times.add(timestamp)
    buckets = TimeBuckets([stats])
    assert buckets.count <= BUCKETS_MAX + 3
    assert max(start.timestamp() * 1000 for start in buckets.starts) <= TIME_MAX_MS
    assert sum(TimeBuckets([partition("t", 1, 1)]).counts([stats])) == 0
