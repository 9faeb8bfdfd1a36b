"""`python -m tests.support.prepare`: install and download what the tests need besides Python packages; with names, only those sets of jars.

Does only what is missing, and prints what it does and how long it takes. When something fails (no root, no network) it prints one
sentence and continues: the tests that need it fail with the same sentence, and the others run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support import cache

# program -> the Debian package that has it
PROGRAMS = {"java": "default-jre-headless", "javac": "default-jdk-headless", "mvn": "maven", "kcat": "kcat", "faketime": "faketime"}


def main(jar_sets: Sequence[str] = ()) -> int:
    """Prepare everything; the status is 0 even when something is missing, because most tests do not need it.

    With names of jar sets, prepare only those, and PySpark with Spark's; the status is 1 when something is missing.
    """
    if jar_sets:
        for jar_set in jar_sets:
            ensure_jars(jar_set)
        if cache.SPARK in jar_sets:
            ensure_pyspark()
        return 0 if all(map(cache.jars_are_complete, jar_sets)) and (cache.SPARK not in jar_sets or cache.pyspark_is_complete()) else 1
    cache.directory().mkdir(parents=True, exist_ok=True)
    with _alone():
        _install_programs()
        if shutil.which("mvn") and shutil.which("java"):
            for jar_set in cache.JAR_SETS:
                _download_jars(jar_set)
        _install_pyspark()
    return 0


def ensure_jars(jar_set: str) -> None:
    """Download one set of jars unless it is complete; prints why when that fails."""
    cache.directory().mkdir(parents=True, exist_ok=True)
    with _alone():
        _download_jars(jar_set)


def ensure_pyspark() -> None:
    """Install PySpark unless it is complete; prints why when that fails."""
    cache.directory().mkdir(parents=True, exist_ok=True)
    with _alone():
        _install_pyspark()


def _install_programs() -> None:
    missing = {program: package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing.values()]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        _say(f"{', '.join(missing)} not found; the tests that need them will fail. On Debian, as root: {' '.join(command)}")
        return
    with _step(f"apt-get install {' '.join(missing.values())}"):
        if not _run(command):
            _run(["apt-get", "update"])
            _run(command)


def _download_jars(jar_set: str) -> None:
    if cache.jars_are_complete(jar_set):
        return
    folder = cache.jar_directory(jar_set)
    fresh = folder.with_name(folder.name + ".part")
    with _step(f"the jars of {jar_set}, with Maven, into {folder}"):
        shutil.rmtree(fresh, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", str(cache.pom(jar_set)), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}",
                   "-DincludeScope=runtime"]
        if _run(command):
            cache.mark_complete(fresh, jar_set)
            _put_in_place(fresh, folder)


def _install_pyspark() -> None:
    """Install PySpark into its own folder: half a gigabyte that all clones and virtual environments can share."""
    if cache.pyspark_is_complete():
        return
    folder = cache.pyspark_directory()
    fresh = folder.with_name(folder.name + ".part")
    with _step(f"PySpark {cache.pyspark_version()} (430 MB to download, two minutes or so) into {folder}"):
        shutil.rmtree(fresh, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--target", str(fresh),
                   f"pyspark=={cache.pyspark_version()}"]
        if _run(command):
            cache.mark_complete(fresh)
            _put_in_place(fresh, folder)


def _put_in_place(fresh: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def _run(command: list[str]) -> bool:
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, check=False,
                               env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    except OSError as error:
        _say(f"{command[0]}: {error}")
        return False
    if ended.returncode != 0:
        _say(f"{' '.join(command)} failed with {ended.returncode}:\n{ended.stdout[-2000:]}")
    return ended.returncode == 0


@contextmanager
def _alone() -> Iterator[None]:
    """Lock the cache, which several clones may share."""
    with (cache.directory() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _step(title: str) -> Iterator[None]:
    _say(f"== {title}")
    start = time.monotonic()
    yield
    _say(f"   {time.monotonic() - start:.0f} s")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
