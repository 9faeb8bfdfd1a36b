"""Signals that arrive at a bad moment."""

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
from txbroker.signals import INTERRUPTED

FULL_PIPE_BYTES = 65_536 - 4_096  # pipe(7); a page of short lines may not be full
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


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_a_line_is_written_stops_the_process(number: signal.Signals, unbuffered: str) -> None:
    """Python runs its handler within the write; a supervisor sends SIGTERM once only."""
    log = written_when_signalled(PROGRAM, number, unbuffered)
    assert b" end of the line (txbroker)\n" in log
    assert f"{number.name}: stopping".encode() in log
    assert b"Traceback" not in log


INTERRUPTED_TWICE = """
import logging, os, sys, threading, time
from txbroker.log_output import TEXT, parse_levels, write_log
from txbroker.signals import StopSignals

class Reactor:
    def callFromThread(self, *call):
        os.write(int(sys.argv[1]), b"1")

def log():
    logging.getLogger("txbroker").info("x" * 1_000_000)

def fill():
    os.set_blocking(2, False)
    try:
        while True:
            os.write(2, bytes(4096))
    except BlockingIOError:
        os.set_blocking(2, True)

write_log(sys.stderr, TEXT, parse_levels([]))
StopSignals(Reactor(), lambda: None).take()
{begin}
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize("begin", ["log()", "threading.Thread(target=log).start()", "fill()"])
def test_a_second_interrupt_ends_a_process_whose_log_nobody_reads(begin: str) -> None:
    """A pager that waits for a key, for example."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
    first_handled, note = os.pipe()
    command = [sys.executable, "-c", INTERRUPTED_TWICE.format(begin=begin), str(note)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, pass_fds=(note,)) as child:
        try:
            os.close(note)
            assert child.stderr is not None
            pipe = child.stderr.fileno()
            until(lambda: waiting_bytes(pipe) >= FULL_PIPE_BYTES, "the pipe is full")
            child.send_signal(signal.SIGINT)
            assert os.read(first_handled, 1) == b"1"
            child.send_signal(signal.SIGINT)
            assert child.wait(PATIENCE_S) == INTERRUPTED
        finally:
            child.kill()
            os.close(first_handled)


LONG_LINE = """
import signal
from txbroker import tap
from txbroker.cli import main

def write(*_):
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    print("x" * 1_000_000)
    return 0

def command():
    main._main = write  # as a command that prints
    main.main([])

def service():
    options = tap.Options()
    options.parseOptions(["--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "log.dirs=/nonexistent/data"])
    tap.makeService(options)
    write()

{begin}()
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("begin", ["command", "service"])
def test_a_signal_cuts_no_line_of_standard_output(begin: str, unbuffered: str) -> None:
    """Commands print there, and twistd writes its log there."""
    assert written_when_signalled(LONG_LINE.format(begin=begin), signal.SIGTERM, unbuffered).endswith(b"x" * 1_000_000 + b"\n")


def written_when_signalled(program: str, number: signal.Signals, unbuffered: str) -> bytes:
    """What the program writes if the signal arrives when it waits for a full pipe."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-c", program]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    try:
        assert child.stdout is not None
        pipe = child.stdout.fileno()
        until(lambda: waiting_bytes(pipe) >= FULL_PIPE_BYTES, "the pipe is full")
        child.send_signal(number)
        written, _ = child.communicate(timeout=PATIENCE_S)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0
    return written


def waiting_bytes(pipe: int) -> int:
    """How many bytes wait in a pipe."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)


WAITS = """
import signal, sys
from txbroker.signals import SignalledEvent

def waits(event, line):
    # The signal arrives before this line of the wait is executed, wherever its code is.
    left = line
    def trace(frame, what, argument):
        nonlocal left
        if what == "line":
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGTERM)
        return trace
    signal.signal(signal.SIGTERM, lambda number, frame: event.set())
    sys.settrace(trace)
    try:
        event.wait(0.01)
    finally:
        sys.settrace(None)
    assert event.is_set() or left > 0
    return left <= 0

line = 1
while waits(SignalledEvent(), line):
    line += 1
print(line)
"""


def test_an_event_is_set_by_a_signal_at_any_line_of_a_wait() -> None:
    """With threading.Event the program would not end: its `set` waits for the lock of its `wait`."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    ended = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=True)
    assert int(ended.stdout) > 3
