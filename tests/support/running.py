"""The service as a process: `txbroker run` or twistd, and its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.cache import CHECKOUT
from tests.support.platforms import platform_override
from tests.support.waiting import PATIENCE_S, until

RUN = (sys.executable, "-m", "txbroker", "run")
TWISTD = (sys.executable, "-c", "from twisted.scripts.twistd import run; run()", "-n", "txbroker")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(CHECKOUT)}


def patched(text: str, host: Sequence[str] = RUN) -> tuple[str, ...]:
    """The command of a host (`RUN` or `TWISTD`) that runs some Python code first."""
    run = "from txbroker.cli.main import main; raise SystemExit(main())" if host is RUN else host[2]
    script = f"import time, txbroker.log.directories as d, txbroker.broker_service as tap\n{text}\n{run}"
    return (sys.executable, "-c", script, *host[3:])


def flags(data: str | Path, listeners: str = "PLAINTEXT://127.0.0.1:0") -> list[str]:
    """The flags for the data directory and the listeners."""
    settings = {"log.dirs": str(data), "listeners": listeners, **platform_override()}
    return [argument for key, value in settings.items() for argument in ("--override", f"{key}={value}")]


class Running:
    """A service that was started in `directory`; the files `out` and `err` there receive its output.

    Its data is in `data`, and it listens on a free port, unless `settings` specify them.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        *arguments: str,
        settings: Sequence[str] | None = None,
        ignoring: Sequence[signal.Signals] = (),
        environment: Mapping[str, str] = ENVIRONMENT,
    ) -> None:
        self.data = directory / "data"
        self._out, self._err = directory / "out", directory / "err"
        self.ready_file = directory / "ready"
        line = [*command, *(flags(self.data) if settings is None else settings), "--ready-file", str(self.ready_file), *arguments]

        def ignore() -> None:
            for number in ignoring:
                signal.signal(number, signal.SIG_IGN)

        with self._out.open("ab") as out, self._err.open("ab") as err:
            self.process = subprocess.Popen(line, cwd=directory, stdout=out, stderr=err, env=dict(environment), preexec_fn=ignore)

    @property
    def out(self) -> str:
        """Standard output."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Standard error."""
        return self._err.read_text()

    @property
    def address(self) -> str:
        """host:port of the first listener, once it is ready."""
        return self.ready_file.read_text().splitlines()[0]

    @property
    def written(self) -> str:
        """Standard output and error."""
        return self.out + self.err

    def wait_ready(self) -> None:
        """Wait until clients are served."""
        until(lambda: self.ready_file.exists() or self.process.poll() is not None, "the service is ready")
        assert self.process.poll() is None, self.written

    def wait_for(self, text: str) -> None:
        """Wait until its output has this text."""
        until(lambda: text in self.written or self.process.poll() is not None, f"it writes {text!r}")
        assert text in self.written

    def end(self, *signals: signal.Signals) -> int:
        """Send signals; the exit status."""
        for number in signals:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        assert "Traceback" not in self.written
        return status
