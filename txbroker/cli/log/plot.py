"""The picture of `txbroker log stats --plot`: sizes of segments and batches, codecs, keys, and when records are from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from txbroker.cli.failures import CommandFailed, missing_library

if TYPE_CHECKING:
    from txbroker.logtools.partition_stats import PartitionStats

PARTITIONS_MAX = 40
TIME_MAX_MS = 253_402_300_799_000  # the last that a calendar of four digits knows


def check_matplotlib() -> None:
    """CommandFailed when it is not installed: before the work, not after it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_library("--plot", "matplotlib") from None


def plot(path: str, counted: Sequence[PartitionStats]) -> None:
    """Draw what was counted into a file, all partitions together and the largest of them side by side. CommandFailed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(15, 8), layout="constrained")
    largest = sorted(counted, key=lambda stats: stats.size, reverse=True)[:PARTITIONS_MAX]
    _segments(axes[0][0], largest)
    _batches(axes[0][1], counted)
    _codecs(axes[0][2], counted)
    _keys(axes[1][0], largest)
    _times(axes[1][1], counted)
    _records(axes[1][2], counted)
    try:
        figure.savefig(path)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror or error}; choose another --plot") from None
    finally:
        pyplot.close(figure)


def _segments(axes: Any, largest: Sequence[PartitionStats]) -> None:
    axes.set_title("bytes of segments, one above the other")
    names = [str(stats.topic_partition) for stats in largest]
    bottoms = [0] * len(largest)
    for at in range(max((len(stats.segments) for stats in largest), default=0)):
        sizes = [stats.segments[at].size if at < len(stats.segments) else 0 for stats in largest]
        axes.barh(names, sizes, left=bottoms, edgecolor="white", linewidth=0.5, color="tab:blue")
        bottoms = [bottom + size for bottom, size in zip(bottoms, sizes, strict=True)]
    axes.invert_yaxis()


def _powers(axes: Any, counts: Counter[int], unit: str) -> None:
    bits = range(min(counts, default=0), max(counts, default=0) + 1)
    axes.bar([str(1 << each) for each in bits], [counts[each] for each in bits])
    axes.set_xlabel(f"{unit}, below")
    axes.tick_params(axis="x", rotation=60)


def _batches(axes: Any, counted: Sequence[PartitionStats]) -> None:
    axes.set_title("batches by size")
    _powers(axes, sum((stats.batch_sizes for stats in counted), Counter()), "bytes")


def _records(axes: Any, counted: Sequence[PartitionStats]) -> None:
    axes.set_title("batches by records")
    _powers(axes, sum((stats.batch_records for stats in counted), Counter()), "records")


def _codecs(axes: Any, counted: Sequence[PartitionStats]) -> None:
    axes.set_title("bytes by codec: on disk, decompressed")
    names = sorted({name for stats in counted for name in stats.codecs})
    for offset, what, color in ((-0.2, "stored_bytes", "tab:blue"), (0.2, "plain_bytes", "tab:orange")):
        totals = [sum(getattr(stats.codecs[name], what) for stats in counted if name in stats.codecs) for name in names]
        axes.bar([at + offset for at in range(len(names))], totals, width=0.4, color=color)
    axes.set_xticks(range(len(names)), names)


def _keys(axes: Any, largest: Sequence[PartitionStats]) -> None:
    axes.set_title("records: latest of their key, obsolete, without key")
    names = [str(stats.topic_partition) for stats in largest]
    latest = [stats.keyed - stats.obsolete for stats in largest]
    obsolete = [stats.obsolete for stats in largest]
    axes.barh(names, latest, color="tab:green")
    axes.barh(names, obsolete, left=latest, color="tab:red")
    both = [a + b for a, b in zip(latest, obsolete, strict=True)]
    axes.barh(names, [stats.keyless for stats in largest], left=both, color="tab:gray")
    axes.invert_yaxis()


def _times(axes: Any, counted: Sequence[PartitionStats]) -> None:
    axes.set_title("records by timestamp")
    for stats in counted[:PARTITIONS_MAX]:
        width = stats.times.width_ms
        points = sorted((bucket * width, count) for bucket, count in stats.times.counts.items() if bucket * width <= TIME_MAX_MS)
        axes.plot([datetime.fromtimestamp(at / 1000, UTC) for at, _ in points], [count for _, count in points], marker=".")
    axes.tick_params(axis="x", rotation=30)
