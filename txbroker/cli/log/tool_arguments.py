"""What the tools for log directories share: their flags, what paths name, progress, and how files are called in results."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import number
from txbroker.cli.failures import BadUsage, CommandFailed
from txbroker.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from txbroker.log.disk import Disk
    from txbroker.logtools.log_paths import Survey


def add_places(parser: argparse.ArgumentParser, *, files: bool) -> None:
    """The flags that say what to look at."""
    what = "a data directory, a partition's directory" + (", or a file of one" if files else "")
    parser.add_argument("paths", nargs="+", metavar="FILE", help=what)
    parser.add_argument("--topic", metavar="NAME", help="of data directories: the partitions of this topic only")
    parser.add_argument("--partition", type=number(0), metavar="NUMBER", help="with --topic: this partition only")


def look(disk: Disk, arguments: argparse.Namespace, *, files: bool) -> Survey:
    """What the paths name. BadUsage for what is no log directory, or when nothing is left; CommandFailed when a disk fails."""
    from txbroker.errors import StorageError
    from txbroker.logtools.log_paths import NoLogDirectory, survey

    if arguments.partition is not None and arguments.topic is None:
        raise BadUsage("--partition needs --topic")
    paths = [os.path.abspath(path) for path in arguments.paths]
    try:
        found = survey(disk, paths, topic=arguments.topic, partition=arguments.partition)
    except NoLogDirectory as error:
        raise BadUsage(str(error)) from None
    except StorageError as error:
        raise CommandFailed(f"{error}; run this as a user who may read it") from None
    if found.files and not files:
        raise BadUsage(f"{found.files[0]} is a file; name a data directory or a partition's directory")
    if not found.partitions and not found.files and arguments.topic is not None:
        wanted = arguments.topic if arguments.partition is None else f"{arguments.topic}-{arguments.partition}"
        raise BadUsage(f"there is no partition of {wanted} in {', '.join(arguments.paths)}; see its directories")
    return found


def progress(total: int) -> Progress:
    """A line on the terminal that says how far it is, if standard error is one."""
    return Progress(sys.stderr if sys.stderr.isatty() else None, time.monotonic, total)


class finishing:
    """A context in which a progress line is shown, and ended however the work ends."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown

    def __enter__(self) -> Progress:
        return self._shown

    def __exit__(self, *_: Any) -> None:
        with suppress(OSError):
            self._shown.finish()


def shorten(path: str, paths: Sequence[str]) -> str:
    """A path as it is called in results: as below the one of `paths` that it is in, which is left out where it is the only one."""
    for given in paths:
        base = os.path.abspath(given)
        if path == base:
            return given.rstrip("/") or given
        if path.startswith(base.rstrip("/") + "/"):
            below = os.path.relpath(path, base)
            return below if len(paths) == 1 else os.path.join(given, below)
    return path
