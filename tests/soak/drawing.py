"""A plot of the samples of a soak test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.soak.sampling import Sample

_PANELS: tuple[tuple[str, tuple[tuple[str, Callable[[Sample], float]], ...]], ...] = (
    ("memory, MiB", (("resident", lambda s: s.rss_kib / 1024), ("without files", lambda s: s.anonymous_kib / 1024))),
    ("descriptors", (("all", lambda s: s.descriptors), ("sockets", lambda s: s.sockets), ("deleted files", lambda s: s.deleted_files))),
    ("threads", (("threads", lambda s: s.threads),)),
    ("disk, MiB", (("disk", lambda s: s.disk_kib / 1024),)),
)


def draw(samples: Sequence[Sample], path: Path, title: str) -> None:
    """Write an SVG; needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 11), layout="constrained")
    axes = figure.subplots(len(_PANELS) + 1, sharex=True)
    minutes = [sample.elapsed_s / 60 for sample in samples]
    for axis, (label, curves) in zip(axes, _PANELS, strict=False):
        for name, value in curves:
            axis.plot(minutes, [value(sample) for sample in samples], label=name, linewidth=0.8)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right", fontsize="small")
    shares = [(b.cpu_s - a.cpu_s) / (b.elapsed_s - a.elapsed_s) for a, b in itertools.pairwise(samples)]
    axes[-1].plot(minutes[1:], shares, linewidth=0.6)
    axes[-1].set_ylabel("cores used")
    axes[-1].set_xlabel("minutes")
    axes[-1].grid(alpha=0.3)
    figure.suptitle(title)
    figure.savefig(path, format="svg", metadata={"Date": None})
