"""A signal that arrives while a log line is written."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios

import pytest

from tests.support.cache import CHECKOUT
from tests.support.waiting import PATIENCE_S, until

PIPE_BYTES = 65_536  # pipe(7)
PROGRAM = """
import logging, sys
from twisted.internet import reactor
from txbroker.log_output import TEXT, parse_levels, write_log
from txbroker.signals import StopSignals

write_log(sys.stderr, TEXT, parse_levels([]))
def start():
    StopSignals(reactor, reactor.stop).take()
    logging.getLogger("txbroker").info("%s end of the line", "x" * 1_000_000)
reactor.callWhenRunning(start)
reactor.run()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_a_line_is_written_stops_the_process(number: signal.Signals) -> None:
    """Python runs its handler within the write; a supervisor sends SIGTERM once only."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    child = subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, env=environment)
    try:
        assert child.stderr is not None
        pipe = child.stderr.fileno()
        until(lambda: waiting_bytes(pipe) >= PIPE_BYTES, "the pipe is full")
        child.send_signal(number)
        _, log = child.communicate(timeout=PATIENCE_S)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0
    assert b" end of the line (txbroker)\n" in log
    assert f"{number.name}: stopping".encode() in log
    assert b"Traceback" not in log


def waiting_bytes(pipe: int) -> int:
    """How many bytes wait in a pipe."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)
