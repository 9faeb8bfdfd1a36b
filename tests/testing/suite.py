"""Runs of pytest, in processes of their own, on files that a test writes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

from tests.support.cache import CHECKOUT
from tests.support.waiting import PATIENCE_S, until
from tests.testing.leftovers import brokers_in


class Suite:
    """A folder with tests. `temporary` has the temporary files of its runs, and so of their brokers."""

    def __init__(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "suite"
        self.temporary = tmp_path / "temporary"
        self.directory.mkdir()
        self.temporary.mkdir()

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self.directory / name).write_text(dedent(text), encoding="utf-8")

    @contextlib.contextmanager
    def running(self, *arguments: str, xdist: bool = False) -> Iterator[subprocess.Popen[str]]:
        """A run of pytest with only the plugins that it needs; it is ended afterwards."""
        plugins = ["-p", "txbroker.testing.pytest_plugin", *(["-p", "xdist"] if xdist else [])]
        command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-rA", "-p", "no:cacheprovider", *plugins, *arguments]
        if not (self.directory / "pytest.ini").exists():
            self.write("pytest.ini", "[pytest]\n")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = {
            **kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(self.temporary), "PYTHONPATH": str(CHECKOUT),
        }  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=self.directory
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: str, xdist: bool = False, status: int = 0) -> str:
        """The output of a run that has ended with this status, and has left no broker."""
        with self.running(*arguments, xdist=xdist) as process:
            output, _ = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == status, output
        assert brokers_in(self.temporary) == [], output
        return output

    def check_nothing_is_left(self) -> None:
        """After a kill: all brokers have ended, and removed their files."""
        until(lambda: not brokers_in(self.temporary), "the brokers have ended")
        until(lambda: not list(self.temporary.glob("txbroker-*")), "their directories are removed")
