"""Commands in poor surroundings: no home directory, no current directory, no place for a cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import command
from tests.support.waiting import PATIENCE_S
from txbroker.console import java_programs
from txbroker.console.failures import CommandFailed

UID_WITHOUT_HOME = 1_000_670_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user id")
def test_the_cache_of_a_user_without_a_home_directory() -> None:
    """As in OpenShift, where the user id of a container has no entry in /etc/passwd."""
    code = "import os; from txbroker.console.java_programs import cache_folder\n" \
           f"os.environ.pop('HOME', None); os.environ.pop('XDG_CACHE_HOME', None); os.setuid({UID_WITHOUT_HOME})\n" \
           "try: cache_folder('jars')\nexcept Exception as error: print(type(error).__name__, error)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True,
                          cwd=Path(__file__).parent.parent.parent)  # fmt: skip
    assert done.stdout.startswith(f"CommandFailed user {UID_WITHOUT_HOME} has no home directory, and HOME is not set: set XDG_CACHE_HOME")


def test_a_cache_that_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no directory")
    (tmp_path / "mvn").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CommandFailed, match=r"cannot create .*file/txbroker/jars: Not a directory; set XDG_CACHE_HOME"):
        java_programs.fetch_jars(tmp_path / "pom.xml", java_programs.cache_folder("jars"), ["a.jar"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "--override", "log.dirs=data", "--override", "listeners=PLAINTEXT://127.0.0.1:0"),
         "log.dirs has a relative path, and the current directory cannot be read (No such file or directory)"),
        (("run", "--processes", "2", "--override", "log.dirs=data", "--override", "listeners=PLAINTEXT://127.0.0.1:0"),
         "log.dirs has a relative path, and the current directory cannot be read (No such file or directory)"),
        (("dump-log", "--files", "x"), "the current directory does not exist any more, or cannot be read: change to another one"),
        (("log", "verify", "x"), "the current directory does not exist any more, or cannot be read: change to another one"),
    ],
)  # fmt: skip
def test_a_current_directory_that_was_removed(arguments: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(gone), *command(*arguments)]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)})  # fmt: skip
    assert done.returncode == 1
    assert sentence in done.stderr and "internal error" not in done.stderr
