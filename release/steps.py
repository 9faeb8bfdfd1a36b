"""Steps of a release: commands with progress, and the error that ends the release."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# The environment without settings of Python and of an active virtual environment.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") and name != "VIRTUAL_ENV"}


class Refused(Exception):
    """The release cannot be made; the message says why, and what to do."""


@contextmanager
def step(what: str) -> Iterator[None]:
    """Print what is being done, and its duration when it is done."""
    print(f"== {what}", end="", flush=True)
    began = time.monotonic()
    try:
        yield
    except BaseException:
        print(" ... failed", flush=True)
        raise
    print(f" ({time.monotonic() - began:.0f} s)", flush=True)


def note(text: str) -> None:
    """Print a line that is not a step."""
    print(f"   {text}", flush=True)


def run(*command: str | Path, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a command, and return its standard output; Refused with the end of what it wrote if it fails."""
    variables = {**ENVIRONMENT, **(environment or {})}
    try:
        ended = subprocess.run(command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Refused(f"cannot run {command[0]}: {error}") from error
    if ended.returncode != 0:
        words = " ".join(map(str, command))
        raise Refused(f"this command failed with status {ended.returncode}: {words}\n{(ended.stdout + ended.stderr)[-4000:]}")
    return ended.stdout


def fail(problem: Refused) -> int:
    """Print why there is no release; returns the exit status."""
    print(f"make release: {problem}", file=sys.stderr)
    return 1
