"""`python -m tests.overload`: run each abuse for some time, and print the latencies of other clients beside their limits.

A round trip of the other clients is two requests: a record is produced with acks=all, and fetched. Exit status 1 when a limit is exceeded.
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

# The limit for the other clients' p99 under an abuse: this multiple of the p99 without it, and at least this time.
RATIO_MAX = 10.0
FLOOR_S = 0.100


def _row(abuse: Abuse, seconds: float, directory: Path) -> tuple[list[str], list[str]]:
    """The table row of one abuse, and the exceeded limits."""
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
            until(lambda: not watch.missing(abuse), f"{abuse.name}: refusals are counted", every_s=0.2)
        others.close()
        grown, counted = watch.grown_mib, watch.counted()
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)
    p99_quiet, p99_busy = (latencies[len(latencies) * 99 // 100] for latencies in (quiet, busy))
    allowed = max(RATIO_MAX * p99_quiet, FLOOR_S)
    wrong = []
    if p99_busy > allowed:
        wrong.append(f"{abuse.name}: the p99 of other clients is {p99_busy * 1e3:.0f} ms, the limit is {allowed * 1e3:.0f} ms")
    if grown > abuse.memory_mib:
        wrong.append(f"{abuse.name}: the broker grew by {grown:.0f} MiB, the limit is {abuse.memory_mib} MiB ({abuse.why})")
    cells = [
        abuse.name, f"{quiet[len(quiet) // 2] * 1e3:.1f}", f"{p99_quiet * 1e3:.1f}", f"{busy[len(busy) // 2] * 1e3:.1f}",
        f"{p99_busy * 1e3:.1f}", f"{p99_busy / p99_quiet:.1f}", f"{allowed * 1e3:.0f}", f"{grown:.0f}", str(abuse.memory_mib),
        ", ".join(f"{reason} {count}" for reason, count in sorted(counted.items())),
    ]
    return cells, wrong


HEADER = ["abuse", "p50 without, ms", "p99 without", "p50 with", "p99 with", "ratio", "p99 limit", "growth, MiB", "limit",
          "refusals"]


def main() -> int:
    """The command line."""
    names = [abuse.name for abuse in ABUSES]
    parser = argparse.ArgumentParser(prog="make overload ARGS=...", description=__doc__.split("\n\n")[0])
    parser.add_argument("abuses", nargs="*", metavar="ABUSE", help=f"one of {', '.join(names)} (default: all)")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each abuse and of the run without it (%(default)s)")
    options = parser.parse_args()
    unknown = set(options.abuses) - set(names)
    if unknown:
        parser.error(f"unknown abuse: {', '.join(sorted(unknown))}; specify one of {', '.join(names)}")
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
        print(f"FAILED: {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
