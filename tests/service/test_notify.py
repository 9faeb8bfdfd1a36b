"""Notifications to systemd over a real socket: starting, ready, watchdog, stopping."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from tests.support import raw_admin
from tests.support.running import ENVIRONMENT, RUN, TWISTD, Running, patched
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from txbroker.supervisor import REPEAT_S, Supervisor


class Supervising:
    """The supervisor's socket, and the messages received."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)
        self._told: list[str] = []
        self.environment = {**ENVIRONMENT, "NOTIFY_SOCKET": address}

    def messages(self) -> list[str]:
        """The lines of all messages so far."""
        while True:
            try:
                self._told += self._socket.recv(4096).decode().split("\n")
            except BlockingIOError:
                return self._told

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def supervising(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervising]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@txbroker-test-{os.getpid()}"
    supervisor = Supervising(address)
    yield supervisor
    supervisor.close()


@pytest.mark.process
@pytest.mark.parametrize("host", [RUN, TWISTD], ids=["run", "twistd"])
def test_ready_and_stopping_are_notified(host: tuple[str, ...], supervising: Supervising, tmp_path: Path) -> None:
    environment = {**supervising.environment, "WATCHDOG_USEC": "200000"}
    service = Running(host, tmp_path, environment=environment)
    try:
        until(lambda: "READY=1" in supervising.messages(), "READY is notified")
        assert service.ready_file.exists(), "clients are served by then"
        reported = supervising.messages()
        assert reported[0].startswith("EXTEND_TIMEOUT_USEC="), "a start requests more time at once"
        assert f"STATUS=serving clients: PLAINTEXT on {service.address}" in reported
        seen = reported.count("WATCHDOG=1")
        until(lambda: supervising.messages().count("WATCHDOG=1") >= seen + 2, "WATCHDOG is notified")
        assert "STOPPING=1" not in supervising.messages()
        assert service.end(signal.SIGTERM) == 0
        reported = supervising.messages()
        assert reported.count("READY=1") == reported.count("STOPPING=1") == 1
        assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in reported[reported.index("STOPPING=1") :])
    finally:
        service.process.kill()
        service.process.wait()


@pytest.mark.process
def test_the_status_has_the_number_of_loaded_logs(start_broker: Callable[..., Server], supervising: Supervising, name: str) -> None:
    server = start_broker()
    raw_admin.create_topic(server, name, 20)
    server.kill()
    service = Running(RUN, server.directory, environment=supervising.environment)
    try:
        service.wait_for("listening: ")  # the supervisor reads only now, when its socket may be full
        until(lambda: "READY=1" in supervising.messages(), "READY is notified")
        reported = supervising.messages()
        assert f"STATUS=loading logs: 10 of 20 of {server.data}" in reported
        assert reported.index(f"STATUS=loading logs: 20 of 20 of {server.data}") < reported.index("READY=1")
        assert service.end(signal.SIGTERM) == 0
    finally:
        service.process.kill()
        service.process.wait()


@pytest.mark.process
def test_a_start_that_is_refused_is_never_ready(supervising: Supervising, tmp_path: Path) -> None:
    service = Running(patched("d.LogDirectories.open = lambda self: 1 / 0"), tmp_path, environment=supervising.environment)
    assert service.process.wait(PATIENCE_S) == 1
    assert "READY=1" not in supervising.messages()


@pytest.mark.parametrize("address", ["", "relative/path", "/nowhere/at/all", "@without-a-listener"])
def test_a_missing_socket_is_ignored(address: str) -> None:
    supervisor = Supervisor(Clock(), {"NOTIFY_SOCKET": address}, 1)
    supervisor.starting()
    supervisor.status("x")
    supervisor.ready("y")
    supervisor.stopping()
    supervisor.stopped()


@pytest.mark.parametrize(
    ("environment", "delay_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "4000000"}, 2.0),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "7"}, 2.0),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "120000000"}, 15.0),
        ({"WATCHDOG_USEC": "x"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_the_watchdog_is_notified_twice_per_interval(environment: dict[str, str], delay_s: float | None, tmp_path: Path) -> None:
    clock = Clock()
    supervisor = Supervisor(clock, {"NOTIFY_SOCKET": str(tmp_path / "none"), **environment}, 7)
    supervisor.starting()
    supervisor.ready("")
    assert [call.getTime() for call in clock.getDelayedCalls()] == ([] if delay_s is None else [delay_s])
    supervisor.stopped()


@pytest.mark.parametrize("stopping", [False, True])
def test_a_change_of_state_is_repeated_until_the_socket_has_room(stopping: bool, tmp_path: Path) -> None:
    """The socket of a supervisor that is busy holds some messages, here those of the loading of logs; a start that is never ready fails."""
    supervising = Supervising(str(tmp_path / "notify"))
    clock = Clock()
    supervisor = Supervisor(clock, supervising.environment, 1)
    supervisor.starting()
    queue = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    for done in range(queue + 10):
        supervisor.status(f"loading logs: {done}")
    supervisor.ready("serving clients")
    clock.advance(REPEAT_S)
    if stopping:
        supervisor.stopping()
    clock.advance(REPEAT_S)
    assert {"READY=1", "STOPPING=1"}.isdisjoint(supervising.messages()[:]), "the socket was full"
    clock.advance(REPEAT_S)
    assert supervising.messages()[-2:] == (["STOPPING=1", "STATUS=stopping"] if stopping else ["READY=1", "STATUS=serving clients"])
    sent = len(supervising.messages())
    clock.advance(REPEAT_S)
    assert len(supervising.messages()) == sent
    supervisor.stopped()
    assert clock.getDelayedCalls() == []
    supervising.close()


def test_a_status_is_one_line(tmp_path: Path) -> None:
    supervising = Supervising(str(tmp_path / "notify"))
    supervisor = Supervisor(Clock(), supervising.environment, 1)
    supervisor.starting()
    supervisor.status("a\nREADY=1")
    assert supervising.messages()[-1] == "STATUS=a READY=1"
    supervisor.stopped()
    supervising.close()
