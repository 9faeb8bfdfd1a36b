"""Child processes that cannot be created: no descriptors, no memory, too many processes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.error import ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from txbroker.broker_processes import RESTART_S, RESTART_S_MAX, BrokerProcesses, _Process
from txbroker.errors import StartError
from txbroker.guard_process import RESTART_S as GUARD_RESTART_S
from txbroker.guard_process import RESTART_S_MAX as GUARD_RESTART_S_MAX
from txbroker.guard_process import SessionGuard
from txbroker.ready_file import ReadyFile

Guard = Callable[[int], None]


class Child:
    """A process as Twisted's transport shows it."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.written = b""
        self.signals: list[Any] = []
        self.input_is_open = True
        protocol.makeConnection(self)

    def write(self, data: bytes) -> None:
        self.written += data

    def closeStdin(self) -> None:
        self.input_is_open = False

    def signalProcess(self, signal: Any) -> None:
        self.signals.append(signal)

    def end(self, status: int = 1) -> None:
        self.protocol.processEnded(Failure(ProcessTerminated(status)))


class Spawning(Clock):
    """A reactor whose next starts of processes fail with `errors`."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        self.children: list[Child] = []
        self.stopped = 0

    def spawnProcess(self, protocol: Any, *_: Any, **__: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.children.append(Child(protocol))

    def stop(self) -> None:
        self.stopped += 1


def no_process() -> OSError:
    return BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


class Systemd:
    watchdog_s = None

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


class Group:
    """`txbroker run --processes` with a server of the metadata and a broker, all of which have served clients."""

    def __init__(self, *, has_served: bool = True) -> None:
        self.reactor = Spawning()
        self.refusals: list[str] = []
        config: Any = None
        systemd: Any = Systemd()
        self.group = BrokerProcesses(self.reactor, config, [], 1, None, systemd=systemd, refuse=self.refusals.append, on_ready=len)
        self.group._has_served = has_served
        self.tree = self._process("the server of the metadata")
        self.broker = self._process("process 0")
        self.group._tree, self.group._brokers = self.tree, [self.broker]

    def _process(self, name: str) -> _Process:
        return _Process(self.group, name, ["x"], "notify", None, lambda: None, None)

    def start(self) -> list[Child]:
        self.tree.start()
        self.broker.start()
        return list(self.reactor.children)


def test_a_process_that_cannot_be_created_at_a_restart_is_created_later(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    _, broker = group.start()
    group.reactor.errors += [no_process(), no_process(), MemoryError()]
    broker.end()
    group.reactor.advance(2 * RESTART_S)
    assert not group.broker.runs, "so that a stop does not wait for it"
    assert "process 0 cannot be started: Resource temporarily unavailable; retrying" in caplog.text
    for _ in range(8):
        group.reactor.advance(RESTART_S_MAX)
    assert group.broker.runs and len(group.reactor.children) == 3
    assert group.refusals == []


def test_a_stop_does_not_wait_for_a_process_that_cannot_be_created() -> None:
    group = Group()
    tree, broker = group.start()
    group.reactor.errors += [no_process() for _ in range(3)]
    broker.end()
    group.reactor.advance(2 * RESTART_S)
    group.group.stop()
    assert not tree.input_is_open
    tree.end(0)
    assert group.reactor.stopped == 1
    group.reactor.advance(RESTART_S_MAX)
    assert len(group.reactor.children) == 2, "nothing is started after the stop"


def test_the_server_of_the_metadata_starts_again_during_a_stop() -> None:
    group = Group()
    tree, broker = group.start()
    group.group.stop()
    group.reactor.errors += [no_process()]
    tree.end()
    group.reactor.advance(2 * RESTART_S)
    group.reactor.advance(RESTART_S_MAX)
    assert group.tree.runs, "the broker needs it for a clean stop"
    broker.end(0)
    group.reactor.children[-1].end(0)
    assert (group.reactor.stopped, group.group.exit_status) == (1, 0)


def test_a_stop_ends_while_the_server_of_the_metadata_cannot_be_created() -> None:
    group = Group()
    tree, broker = group.start()
    group.group.stop()
    group.reactor.errors += [no_process() for _ in range(100)]
    tree.end()
    group.reactor.advance(2 * RESTART_S)
    broker.end(0)
    assert group.reactor.stopped == 1


def test_a_process_that_cannot_be_created_at_the_first_start_is_a_failed_start() -> None:
    group = Group(has_served=False)
    group.reactor.errors += [no_process()]
    group.tree.start()
    assert group.refusals == [
        "the server of the metadata cannot be started: Resource temporarily unavailable; raise the limits of processes and memory"
    ]
    assert (group.group.exit_status, group.reactor.stopped) == (1, 1)
    group.reactor.advance(RESTART_S_MAX)
    assert group.reactor.children == []


def test_ready_files_are_read_and_written_later_if_they_cannot_be_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file of a process is read, then that of all is written; neither directory exists yet."""
    group, of_broker, of_all = Group(has_served=False), tmp_path / "a" / "ready.0", tmp_path / "b" / "ready"
    group.group._ready_file = ReadyFile(str(of_all))
    group.broker._ready_file, group.broker._on_ready = str(of_broker), group.group._broker_ready
    group.start()
    group.broker.report({"READY": "1"})
    assert not group.broker.is_ready
    assert "the addresses of process 0 cannot be read, retrying: [Errno 2]" in caplog.text
    of_broker.parent.mkdir()
    of_broker.write_text("127.0.0.1:9092\nhttp://127.0.0.1:9000\n")
    group.reactor.advance(2 * RESTART_S)
    assert group.broker.is_ready and group.broker.addresses == ["127.0.0.1:9092"]
    assert "the ready file cannot be written, retrying: [Errno 2]" in caplog.text
    of_all.parent.mkdir()
    group.reactor.advance(2 * RESTART_S)
    assert of_all.read_text() == "127.0.0.1:9092\n"
    assert not group.reactor.getDelayedCalls() and group.refusals == []


def test_attempts_to_read_and_write_ready_files_end(tmp_path: Path) -> None:
    """Those to read one when its process ends, those to write one when all stop."""
    group = Group(has_served=False)
    group.group._ready_file = ReadyFile(str(tmp_path / "missing" / "ready"))
    group.broker._ready_file, group.broker._on_ready = str(tmp_path / "ready.0"), group.group._broker_ready
    _, child = group.start()
    group.group._has_served = True
    group.broker.report({"READY": "1"})
    group.group._stopping = True
    child.end(0)
    assert not group.reactor.getDelayedCalls()
    group.group._stopping = group.group._has_served = False
    (tmp_path / "ready.0").write_text("127.0.0.1:9092\n")
    group.broker.start()
    group.reactor.advance(2 * RESTART_S)
    group.broker.report({"READY": "1"})
    assert group.reactor.getDelayedCalls()
    group.group.stop()
    assert not group.reactor.getDelayedCalls()


def test_an_error_after_the_server_of_the_metadata_is_ready_is_a_failed_start() -> None:
    """It was raised where datagrams are received, and the start went on without brokers."""
    group = Group(has_served=False)

    def refuse() -> None:
        raise StartError("no socket")

    group.tree._on_ready = refuse
    group.start()
    group.tree.report({"READY": "1"})
    assert group.refusals == ["no socket"] and group.group.exit_status == 1


class Guarded:
    def __init__(self) -> None:
        self.reactor = Spawning()
        self.guard = SessionGuard(self.reactor, ["x"], lambda: 0.5)

    def session(self, number: int) -> None:
        self.guard.guard("127.0.0.1:2181", 6000, number, b"secret", None)

    def running(self) -> list[Child]:
        return [child for child in self.reactor.children if child.input_is_open]


@pytest.mark.parametrize("between", ["ended", "not created"])
def test_a_session_in_the_pause_before_a_restart_starts_no_second_guard(between: str, caplog: pytest.LogCaptureFixture) -> None:
    guarded = Guarded()
    if between == "ended":
        guarded.session(1)
        guarded.reactor.children.pop().end()
    else:
        guarded.reactor.errors.append(no_process())
        guarded.session(1)
        assert "cannot start, retrying: [Errno 11] Resource temporarily unavailable" in caplog.text
    guarded.session(2)
    guarded.session(3)
    assert guarded.running() == []
    guarded.reactor.advance(GUARD_RESTART_S)
    (child,) = guarded.running()
    assert b'"session": 3' in child.written and b'"session": 2' not in child.written
    guarded.session(4)
    assert b'"session": 4' in child.written and len(guarded.reactor.children) == 1
    guarded.guard.release()
    assert guarded.running() == []
    child.end(0)
    guarded.reactor.advance(GUARD_RESTART_S_MAX)
    assert guarded.running() == [] and not guarded.reactor.getDelayedCalls()


def test_a_release_ends_the_attempts_to_start_a_guard() -> None:
    guarded = Guarded()
    guarded.reactor.errors.append(no_process())
    guarded.session(1)
    guarded.guard.release()
    guarded.reactor.advance(GUARD_RESTART_S_MAX)
    assert guarded.reactor.children == [] and not guarded.reactor.getDelayedCalls()
    guarded.session(2)
    assert b'"session": 2' in guarded.running()[0].written


def test_a_guard_that_ends_again_and_again_starts_with_growing_pauses() -> None:
    guarded = Guarded()
    guarded.session(1)
    for count, pause_s in enumerate((1.0, 2.0, 4.0, 8.0, 10.0, 10.0), 1):
        guarded.reactor.children[-1].end()
        guarded.reactor.advance(pause_s - 0.1)
        assert len(guarded.reactor.children) == count
        guarded.reactor.advance(0.1)
        assert len(guarded.reactor.children) == count + 1
    guarded.reactor.advance(GUARD_RESTART_S_MAX + 1)
    guarded.reactor.children[-1].end()
    guarded.reactor.advance(GUARD_RESTART_S)
    assert len(guarded.running()) == 8
