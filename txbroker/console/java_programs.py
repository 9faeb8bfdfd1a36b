"""Java, and jars that Maven fetches, for the commands that start Java programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from txbroker.console.failures import CommandFailed

MAVEN_TIMEOUT_S = 900


def java_program() -> str:
    """The java program: that of JAVA_HOME, else the one on PATH, else just `java`, which cannot be started."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def cache_folder(name: str) -> Path:
    """The folder of jars in the user's cache directory; CommandFailed if the user has no home directory, as in containers."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(given or Path.home() / ".cache") / "txbroker" / name
    except RuntimeError:
        problem = f"user {os.getuid()} has no home directory, and HOME is not set"
        raise CommandFailed(f"{problem}: set XDG_CACHE_HOME to a directory for the jars that this command keeps") from None


def fetch_jars(pom: Path, folder: Path, names: Sequence[str]) -> None:
    """Copy the jars of a Maven file into `folder`. `names`: what it names, for people without Maven. CommandFailed when Maven cannot."""
    program = shutil.which("mvn")
    if program is None:
        raise CommandFailed("Maven is not installed (Debian: apt-get install maven); with it run this again, "
                            f"or copy these files into {folder}: {', '.join(names)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"cannot create {folder}: {error.strerror}; set XDG_CACHE_HOME to a directory that can be written") from error
    command = [program, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               timeout=MAVEN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"Maven did not finish in {MAVEN_TIMEOUT_S} s; check the network and run this again") from None
    if ended.returncode != 0:
        raise CommandFailed(f"Maven failed with status {ended.returncode}: {ended.stdout.strip()[-1000:]}; correct that and run this again")
