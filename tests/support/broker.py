"""txbroker as a process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.support.cache import CHECKOUT
from tests.support.platforms import platform_override
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S


class BrokerProcess(Server):
    """`txbroker run` of this checkout.

    The first start listens on port 0; once the broker serves clients it writes its addresses (one `host:port` per listener)
    into the file of `--ready-file`. Later starts take the same port again.
    """

    kind = "txbroker"

    def _command(self) -> list[str]:
        self._ready_file.unlink(missing_ok=True)
        overrides = {"listeners": f"PLAINTEXT://{self.address}", "log.dirs": str(self.data), **platform_override(), **self.overrides}
        command = [sys.executable, "-m", "txbroker", "run", "--ready-file", str(self._ready_file)]
        for key, value in overrides.items():
            command += ["--override", f"{key}={value}"]
        return command

    def _is_ready(self) -> bool:
        if not self._ready_file.exists():
            return False
        first, end, _ = self._ready_file.read_text().partition("\n")
        if not end:
            return False
        self.port = int(first.rpartition(":")[2])
        return True

    def _environment(self) -> dict[str, str]:
        # The data directory is the process's working directory; the checkout must be importable from there.
        # Let the broker use compiled modules: pip compiles the modules that it installs.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**inherited, "PYTHONPATH": str(CHECKOUT)}

    def close(self) -> None:
        """SIGKILL. With `make coverage` the process ends cleanly, if it can: a killed one does not write which lines it executed."""
        if self.running and not self.paused and "COVERAGE_PROCESS_CONFIG" in os.environ:
            self._end(signal.SIGTERM, PATIENCE_S)
        super().close()

    @property
    def _ready_file(self) -> Path:
        return self.directory / "ready"
