"""The plot of `txbroker log stats --plot`: sizes, keys, timestamps, batches and codecs of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from txbroker.console.failures import CommandFailed, missing_library
from txbroker.console.texts import size_text
from txbroker.names import amount

if TYPE_CHECKING:
    from txbroker.logtools.partition_stats import PartitionStats

ROWS_MAX = 12  # partitions with a bar of their own
AREAS_MAX = 6  # partitions with an area of their own in the panel of timestamps
BUCKETS_MAX = 100  # time buckets
NAME_MAX = 26  # characters of a partition's name
TURNED_MIN = 7  # from this many labels on they are turned
LABELS_MAX = 12  # below a panel
SMALL = 0.01  # share of the size of all partitions of topics that are not internal: smaller partitions share a bar
TIME_MAX_MS = 253_402_300_799_000  # the end of the year 9999

# The palette of Okabe and Ito, made for colour-blind readers.
BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, GRAY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#999999"
AREAS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY)

_S, _MIN, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
_WIDTHS = (
    *((n * _S, f"{n} s") for n in (1, 2, 5, 10, 30)), *((n * _MIN, f"{n} min") for n in (1, 2, 5, 10, 30)),
    *((n * _H, f"{n} h") for n in (1, 2, 6, 12)), *((n * _D, f"{n} d") for n in (1, 2, 7, 30, 90, 365, 3650, 36500)),
)  # fmt: skip
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


class Row(NamedTuple):
    """One bar: one partition, or the sum of several."""

    name: str
    partitions: Sequence[PartitionStats]
    is_single: bool

    def total(self, value: Callable[[PartitionStats], int]) -> int:
        return sum(value(stats) for stats in self.partitions)


def check_matplotlib() -> None:
    """CommandFailed if matplotlib is not installed. Called before the logs are read."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_library("--plot", "matplotlib") from None


def plot(path: str, counted: Sequence[PartitionStats], directories: str, now: datetime) -> None:
    """Draw the statistics to a file. `directories`: for the title. CommandFailed."""
    try:
        draw(counted, directories, now).savefig(path, dpi=110)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror or error}; choose another --plot") from None


def draw(counted: Sequence[PartitionStats], directories: str, now: datetime) -> Any:
    """The statistics as a figure of matplotlib."""
    from matplotlib.figure import Figure

    rows = rows_of(counted)
    figure = Figure(figsize=(18, 10), layout="constrained")
    axes: Any = figure.subplots(2, 3)
    figure.suptitle(_title(counted, directories, now), fontsize=13)
    _segments(axes[0][0], rows)
    _keys(axes[0][1], rows)
    _codecs(axes[0][2], counted)
    _times(axes[1][0], rows)
    _powers(axes[1][1], "Batches by size", (stats.batch_sizes for stats in counted), "size of a batch", _bytes_below)
    _powers(axes[1][2], "Batches by number of records", (stats.batch_records for stats in counted), "records in a batch", _records_below)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
    return figure


def rows_of(counted: Sequence[PartitionStats]) -> list[Row]:
    """A row for each large partition, in order of size, and one for all others (small ones, and those of internal topics)."""
    external = [stats for stats in counted if not stats.topic_partition.topic.startswith("__")] or list(counted)
    ordered = sorted(external, key=lambda stats: (-stats.size, stats.topic_partition))
    total = sum(stats.size for stats in external)
    singles = [stats for stats in ordered if stats.size >= SMALL * total][:ROWS_MAX]
    others = [stats for stats in counted if stats not in singles]
    if len(others) == 1 and len(singles) < ROWS_MAX:
        singles, others = singles + others, []
    rows = [Row(shortened(str(stats.topic_partition)), [stats], True) for stats in singles]
    return [*rows, Row(amount(len(others), "other"), others, False)] if others else rows


def shortened(name: str) -> str:
    """A name without its middle if it is long, so that labels leave room for the bars."""
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX // 2]}…{name[1 - NAME_MAX // 2 :]}"


def _title(counted: Sequence[PartitionStats], directories: str, now: datetime) -> str:
    sizes = size_text(sum(stats.size for stats in counted))
    counts = f"{amount(len(counted), 'partition')}, {sizes}, {amount(sum(stats.records for stats in counted), 'record')}"
    return f"{directories}\n{counts}, {now:%Y-%m-%d %H:%M} UTC"


def _unit(largest: float) -> tuple[float, str]:
    return next((unit for unit in _SIZES if largest >= unit[0]), _SIZES[-1])


def _few_ticks(*, integer: bool = False) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=5, integer=integer)


def _count_axis(axis: Any) -> None:
    from matplotlib.ticker import EngFormatter

    axis.set_major_locator(_few_ticks(integer=True))
    axis.set_major_formatter(EngFormatter(sep=""))  # 20k, 3M


def _name_bars(axes: Any, rows: Sequence[Row]) -> None:
    """The names of horizontal bars. By position: two shortened names may be equal."""
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)


def _title_of(axes: Any, title: str, *, legend_lines: int = 1) -> None:
    axes.set_title(title, loc="left", pad=14 + 18 * legend_lines, fontweight="bold")


def _legend(axes: Any, columns: int = 3, **settings: Any) -> None:
    """A legend between the title and the axes."""
    settings |= {"ncols": columns, "frameon": False, "borderaxespad": 0.2, "handlelength": 1.2, "fontsize": 9}
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), **settings)


def _segments(axes: Any, rows: Sequence[Row]) -> None:
    from matplotlib.patches import Patch

    _title_of(axes, "Size of log segments")
    scale, unit = _unit(max((row.total(lambda stats: stats.size) for row in rows), default=0))
    for at, row in enumerate(rows):
        sizes = [segment.size / scale for segment in row.partitions[0].segments] if row.is_single else [row.total(lambda s: s.size) / scale]
        bottoms = list(accumulate(sizes[:-1], initial=0.0))
        color = BLUE if row.is_single else GRAY
        axes.barh([at] * len(sizes), sizes, left=bottoms[: len(sizes)], color=color, edgecolor="white", linewidth=0.6)
    handles = [Patch(color=BLUE, label="each box is a segment")]
    if any(not row.is_single for row in rows):
        handles.append(Patch(color=GRAY, label="all other partitions"))
    _name_bars(axes, rows)
    axes.xaxis.set_major_locator(_few_ticks())
    axes.set_xlabel(unit)
    _legend(axes, handles=handles)


def _keys(axes: Any, rows: Sequence[Row]) -> None:
    _title_of(axes, "Records by key")
    left = [0] * len(rows)
    for label, color, value in (
        ("latest of its key", BLUE, lambda stats: stats.keyed - stats.obsolete),
        ("obsolete (for compaction)", ORANGE, lambda stats: stats.obsolete),
        ("without a key", GRAY, lambda stats: stats.keyless),
    ):
        values = [row.total(value) for row in rows]
        axes.barh(range(len(rows)), values, left=left, color=color, label=label)
        left = [one + more for one, more in zip(left, values, strict=True)]
    _name_bars(axes, rows)
    _count_axis(axes.xaxis)
    axes.set_xlabel("records")
    _legend(axes)


def _codecs(axes: Any, counted: Sequence[PartitionStats]) -> None:
    _title_of(axes, "Size of records by codec")
    names = sorted({name for stats in counted for name in stats.codecs})
    stored, plain = (
        [sum(getattr(stats.codecs[name], what) for stats in counted if name in stats.codecs) for name in names]
        for what in ("stored_bytes", "plain_bytes")
    )
    scale, unit = _unit(max([*stored, *plain], default=0))
    at = list(range(len(names)))
    axes.bar([x - 0.2 for x in at], [value / scale for value in stored], width=0.38, color=BLUE, label="on disk")
    bars = axes.bar([x + 0.2 for x in at], [value / scale for value in plain], width=0.38, color=ORANGE, label="decompressed")
    by_codec = zip(names, stored, plain, strict=True)
    ratios = [f"{after / before:.1f} x" if before and name != "none" else "" for name, before, after in by_codec]
    axes.bar_label(bars, labels=ratios, fontsize=9, padding=2)
    axes.set_xticks(at, names)
    axes.set_xlim(-0.8, max(len(names), 1) - 0.2)
    axes.set_ylabel(unit)
    _legend(axes)


def _times(axes: Any, rows: Sequence[Row]) -> None:
    """Stacked areas: one for each of the largest partitions, one for all others."""
    from matplotlib import dates

    date_axis: Any = dates  # it has no type annotations
    singles = [row for row in rows if row.is_single]
    shown = singles[:AREAS_MAX]
    areas = [(row.name, list(row.partitions), color) for row, color in zip(shown, AREAS, strict=False)]
    others = [stats for row in rows if row not in shown for stats in row.partitions]
    if others:
        areas.insert(0, (amount(len(others), "other"), others, GRAY))
    columns = 3 if max((len(name) for name, _, _ in areas), default=0) <= NAME_MAX // 2 else 2
    _title_of(axes, "Records by timestamp", legend_lines=ceil(len(areas) / columns))
    buckets = TimeBuckets([stats for _, partitions, _ in areas for stats in partitions])
    if buckets.count:
        counts = [buckets.counts(partitions) for _, partitions, _ in areas]
        labels, colors = [name for name, _, _ in areas], [color for _, _, color in areas]
        axes.stackplot(buckets.starts, counts, labels=labels, colors=colors, step="mid", linewidth=0)
        locator = date_axis.AutoDateLocator(tz=UTC, minticks=3, maxticks=7)
        # matplotlib has no 2 between 1 and 5, and then finds one date only, or none and warns.
        for unit in (date_axis.MINUTELY, date_axis.SECONDLY):
            locator.intervald[unit] = [1, 2, 5, 10, 15, 30]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(date_axis.ConciseDateFormatter(locator, tz=UTC))
        axes.set_xlabel("UTC")
        axes.set_ylabel(f"records in {buckets.width_text}")
        _legend(axes, columns=columns)
    axes.set_ylim(bottom=0)
    _count_axis(axes.yaxis)


class TimeBuckets:
    """Equal periods (at most BUCKETS_MAX) that cover all timestamps of these partitions."""

    def __init__(self, partitions: Sequence[PartitionStats]) -> None:
        times = [stats.times for stats in partitions if stats.times.counts]
        low = min((min(one.counts) * one.width_ms for one in times), default=0)
        high = min(max(((max(one.counts) + 1) * one.width_ms for one in times), default=0), TIME_MAX_MS)
        least = max([(high - low) // BUCKETS_MAX, *(one.width_ms for one in times), 1])
        self._width_ms, self.width_text = next((width for width in _WIDTHS if width[0] >= least), _WIDTHS[-1])
        self._first = low // self._width_ms - 1  # an empty one at each end
        self.count = high // self._width_ms + 2 - self._first if times else 0

    @property
    def starts(self) -> list[datetime]:
        """The start of each bucket."""
        starts = ((self._first + number) * self._width_ms / 1000 for number in range(self.count))
        return [datetime.fromtimestamp(min(max(start, 0), TIME_MAX_MS / 1000), UTC) for start in starts]

    def counts(self, partitions: Sequence[PartitionStats]) -> list[float]:
        """The number of records in each bucket. A bucket of the statistics that overlaps two of these is divided proportionally."""
        found = [0.0] * self.count
        for stats in partitions:
            width = stats.times.width_ms
            for bucket, records in stats.times.counts.items():
                first = bucket * width // self._width_ms - self._first
                end = (self._first + first + 1) * self._width_ms
                inside = min(max(end - bucket * width, 0), width) / width
                for at, part in ((first, inside), (first + 1, 1 - inside)):
                    if 0 <= at < self.count:
                        found[at] += records * part
        return found


def _powers(axes: Any, title: str, counts: Iterable[Counter[int]], label: str, name: Callable[[int], str]) -> None:
    """A histogram by powers of two."""
    together = sum(counts, Counter[int]())
    bits = range(min(together, default=0), max(together, default=0) + 1)
    _title_of(axes, title, legend_lines=0)
    axes.bar(list(bits), [together[each] for each in bits], color=BLUE, width=0.85)
    labelled = bits[:: ceil(len(bits) / LABELS_MAX)]
    turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if len(labelled) >= TURNED_MIN else {}
    axes.set_xticks(labelled, [name(each) for each in labelled], fontsize=9, **turned)
    axes.set_xlabel(label)
    axes.set_ylabel("batches")
    _count_axis(axes.yaxis)


def _bytes_below(bits: int) -> str:
    """The label of the bucket of sizes below 2 to the power of `bits`."""
    power = 1 << bits
    for unit, text in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if power >= unit:
            return f"< {power // unit} {text}"
    return f"< {power} B"


def _records_below(bits: int) -> str:
    low, high = (1 << bits) >> 1, (1 << bits) - 1
    return str(high) if low >= high else f"{low}-{high}"
