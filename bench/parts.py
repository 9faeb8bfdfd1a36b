"""The command line of a benchmark of several parts."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path


def add_flags(parser: argparse.ArgumentParser, parts: Collection[str], rounds: int, page: str, samples: str) -> None:
    """The flags that all of them have. `page` and `samples` are the files that a full run writes."""
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; without names, all of them")
    parser.add_argument("--quick", action="store_true", help="a short run that checks that everything works; its figures mean nothing")
    parser.add_argument("--rounds", type=int, default=rounds, help="number of measurements (%(default)s)")
    parser.add_argument("--results", type=Path, help=f"directory for {page} and {samples}; default: bench/, unless --quick")
    parser.add_argument("--directory", type=Path, help="directory for everything that the run writes; default: a temporary one")


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str], parts: Collection[str]) -> argparse.Namespace:
    """The values of the flags; ends with status 2 for an unknown part."""
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(parts)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; the parts are {', '.join(parts)}")
    return options
