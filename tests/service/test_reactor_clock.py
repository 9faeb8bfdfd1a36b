"""The reactor's clock is monotonic under `txbroker run` and under twistd, also for calls scheduled before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.running import ENVIRONMENT
from tests.support.waiting import PATIENCE_S


def run(script: str, directory: Path) -> str:
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_calls_that_are_scheduled_already_keep_their_delays(tmp_path: Path) -> None:
    script = """
import time
from twisted.internet import reactor
fired = []
soon, moved, dropped = (reactor.callLater(delay, fired.append, delay) for delay in (0.01, 3600, 0.02))
dropped.cancel()
from txbroker.broker_service import monotonic_reactor
assert monotonic_reactor() is reactor and monotonic_reactor().seconds is time.monotonic
assert -60 < soon.getTime() - time.monotonic() < 60 and 3000 < moved.getTime() - time.monotonic() <= 3600
moved.reset(0.03)
reactor.callLater(0.04, reactor.stop)
reactor.run()
print(fired)
"""
    assert run(script, tmp_path) == "[0.01, 3600]\n"


def test_twistd_has_the_same_clock(tmp_path: Path) -> None:
    script = """
import time
from twisted.internet import reactor
from txbroker.tap import Options, makeService
options = Options()
options.parent = None
options.parseOptions(["--override", "log.dirs=data"])
makeService(options)
print(reactor.seconds is time.monotonic)
"""
    assert run(script, tmp_path) == "True\n"
