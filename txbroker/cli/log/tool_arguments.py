"""Common parts of the tools for log directories: path arguments, progress, and short paths for the output."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from txbroker.cli.arguments import number
from txbroker.cli.progress import Progress
from txbroker.console.failures import BadUsage, CommandFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from txbroker.log.disk import Disk
    from txbroker.logtools.log_paths import Survey


def add_paths(parser: argparse.ArgumentParser, *, files: bool) -> None:
    """Add the paths, --topic and --partition."""
    kinds = "the directory of a partition, or a file in it" if files else "or the directory of a partition"
    parser.add_argument("paths", nargs="+", metavar="PATH", help=f"a log directory (one of log.dirs), {kinds}")
    parser.add_argument("--topic", metavar="NAME", help="only partitions of this topic")
    parser.add_argument("--partition", type=number(0), metavar="NUMBER", help="only this partition of --topic")


def find_logs(disk: Disk, arguments: argparse.Namespace, *, files: bool) -> Survey:
    """The directories, partitions and files that the arguments select. BadUsage: one is not a log directory, or no partition matches."""
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
        raise CommandFailed(f"{error}; run this command as a user with read permission") from None
    if found.files and not files:
        raise BadUsage(f"{found.files[0]} is a file; specify a log directory or the directory of a partition")
    if not found.partitions and not found.files and arguments.topic is not None:
        if arguments.partition is None:
            raise BadUsage(f"no partitions of topic {arguments.topic} in {', '.join(arguments.paths)}; check --topic")
        raise BadUsage(f"partition {arguments.topic}-{arguments.partition} is not in {', '.join(arguments.paths)}; check --partition")
    return found


def progress(total: int) -> Progress:
    """A progress line, shown if standard error is a terminal. `total`: bytes to read."""
    return Progress(sys.stderr if sys.stderr.isatty() else None, time.monotonic, total)


class finishing:
    """Context manager that removes the progress line at the end."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown

    def __enter__(self) -> Progress:
        return self._shown

    def __exit__(self, *_: Any) -> None:
        with suppress(OSError):
            self._shown.finish()


def shorten(path: str, paths: Sequence[str]) -> str:
    """A path for the output: relative to the argument of `paths` that contains it, with that argument in front if there are several."""
    for given in paths:
        base = os.path.abspath(given)
        if path == base:
            return given.rstrip("/") or given
        if path.startswith(base.rstrip("/") + "/"):
            below = os.path.relpath(path, base)
            return below if len(paths) == 1 else os.path.join(given, below)
    return path
