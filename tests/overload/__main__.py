"""`python -m tests.overload`: each abuse for some time, and what it does to the others' latencies: a table beside a stated bound.

A round trip of the others is two requests: a record is produced with acks=all, and fetched. Exit status 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.overload.abuses import ABUSES, Abuse
from tests.overload.others import Others, prepare
from tests.overload.watch import Watch, broker_for, under
from tests.support.waiting import until

# Others' p99 under an abuse: at most so many times what it is without, or so much at all, whichever is more.
RATIO_MAX = 10.0
FLOOR_S = 0.100


def _row(abuse: Abuse, seconds: float, directory: Path) -> tuple[list[str], list[str]]:
    """The cells of one abuse, and what is wrong."""
    server = broker_for(abuse, directory)
    server.start()
    try:
        prepare(server)
        others = Others(server, "harmless")
        time.sleep(1)
        others.take_latencies()
        time.sleep(seconds)
        quiet = others.take_latencies()
        watch = Watch(server)
        with under(abuse, server):
            others.take_latencies()
            time.sleep(seconds)
            busy = others.take_latencies()
            until(lambda: not watch.missing(abuse), f"{abuse.name}: what is refused is counted", every_s=0.2)
        others.close()
        grown, counted = watch.grown_mib, watch.counted()
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)
    p99_quiet, p99_busy = (latencies[len(latencies) * 99 // 100] for latencies in (quiet, busy))
    allowed = max(RATIO_MAX * p99_quiet, FLOOR_S)
    wrong = []
    if p99_busy > allowed:
        wrong.append(f"{abuse.name}: the others' p99 is {p99_busy * 1e3:.0f} ms, {allowed * 1e3:.0f} ms allowed")
    if grown > abuse.memory_mib:
        wrong.append(f"{abuse.name}: the broker grew by {grown:.0f} MiB, {abuse.memory_mib} allowed: {abuse.why}")
    cells = [
        abuse.name, f"{quiet[len(quiet) // 2] * 1e3:.1f}", f"{p99_quiet * 1e3:.1f}", f"{busy[len(busy) // 2] * 1e3:.1f}",
        f"{p99_busy * 1e3:.1f}", f"{p99_busy / p99_quiet:.1f}", f"{allowed * 1e3:.0f}", f"{grown:.0f}", str(abuse.memory_mib),
        ", ".join(f"{reason} {count}" for reason, count in sorted(counted.items())),
    ]
    return cells, wrong


HEADER = ["abuse", "p50 without, ms", "p99 without", "p50 under it", "p99 under it", "ratio", "p99 allowed", "grown, MiB", "allowed",
          "counted"]


def main() -> int:
    """The command line."""
    names = [abuse.name for abuse in ABUSES]
    parser = argparse.ArgumentParser(prog="make overload ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("abuses", nargs="*", metavar="ABUSE", help=f"of {', '.join(names)}; all of them unless named")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each abuse, and without it (%(default)s)")
    options = parser.parse_args()
    unknown = set(options.abuses) - set(names)
    if unknown:
        parser.error(f"no such abuse: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    directory = Path(tempfile.mkdtemp(prefix="txbroker-overload-"))
    rows, wrong = [HEADER], []
    try:
        for abuse in ABUSES:
            if not options.abuses or abuse.name in options.abuses:
                print(f"== {abuse.name}: {abuse.what}", flush=True)
                cells, problems = _row(abuse, options.seconds, directory / abuse.name)
                rows.append(cells)
                wrong += problems
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    print("\n" + "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows))
    for problem in wrong:
        print(f"BROKEN: {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
