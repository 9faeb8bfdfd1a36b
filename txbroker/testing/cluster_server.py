"""The main program of a cluster for tests: it serves the metadata and the control port, and has a process for each broker.

    python -m txbroker.testing.cluster_server --ports PORT,... --data DATA --directory DIR --stop-with PID --override KEY=VALUE ...

It ends with the process that it is started for, and its brokers end with it. In DIR are `ready`, with the address of each broker in a line,
and `control`, as of one broker. The data is as that of `txbroker run --processes N`.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import ensureDeferred
from twisted.internet.task import deferLater
from twisted.internet.threads import blockingCallFromThread, deferToThread
from twisted.python.failure import Failure

from txbroker.broker.process_data import check_process_data
from txbroker.broker_service import TREE_THREADS, log_twisted, monotonic_reactor, worker_pool
from txbroker.cluster import node_paths
from txbroker.cluster.tree.interface import Stat
from txbroker.cluster.tree.sqlite import SqliteTrees
from txbroker.cluster.tree.tree_server import TreeServer
from txbroker.errors import StartError, StorageError
from txbroker.log.directory import make_directory
from txbroker.log.os_disk import OsDisk
from txbroker.log_output import TEXT, parse_levels, write_log
from txbroker.ready_file import write_whole
from txbroker.testing.cluster_brokers import BeforeEnd, ClusterBroker, ClusterBrokers
from txbroker.testing.cluster_control import ClusterControl
from txbroker.testing.control_server import ControlFactory
from txbroker.testing.errors import KitError
from txbroker.testing.process_end import watch_process
from txbroker.testing.secured import PLAINTEXT
from txbroker.testing.settings import HOST

SOCKET = "metadata"  # relative to the directory: the path of a socket is short
SOCKET_MODE = 0o600
THREADS = 32
LOOK_S = 0.01
SESSIONS_END_S = 10.0
EXPIRE_S = 60.0
FAILED = 1


class ClusterServer:
    """The server from start to stop. `exit_status` is for the process."""

    def __init__(self, reactor: Any, arguments: argparse.Namespace) -> None:
        self.exit_status = 0
        self._reactor = reactor
        self._arguments = arguments
        self._directory = Path(arguments.directory)
        self._control: ClusterControl | None = None
        self._trees: SqliteTrees | None = None
        self._server: TreeServer | None = None
        self._is_stopping = False
        self._watched_has_ended = False

    def start(self) -> None:
        """Start everything; in the reactor."""
        self._reactor.addSystemEventTrigger("before", "shutdown", lambda: ensureDeferred(self._stop()))
        watch_process(self._reactor, self._arguments.stop_with, self._watched_ended)
        ensureDeferred(self._start()).addErrback(self._not_started)

    async def _start(self) -> None:
        arguments = self._arguments
        common = dict(text.split("=", 1) for text in arguments.override)
        ports = [int(port) for port in arguments.ports.split(",")]
        metadata = _metadata(arguments.data, len(ports), int(common["broker.id"]))
        self._trees = SqliteTrees(metadata, worker=worker_pool(self._reactor, "tree", TREE_THREADS))
        self._server = TreeServer(self._trees, self._reactor, random.random)
        Path(SOCKET).unlink(missing_ok=True)  # of a server that was killed
        self._reactor.listenUNIX(SOCKET, self._server, mode=SOCKET_MODE)
        began_s = time.monotonic()

        def make(before_end: BeforeEnd, after_start: Callable[[ClusterBroker], None]) -> ClusterBrokers:
            return ClusterBrokers(
                self._directory, common, ports, arguments.data, f"../{SOCKET}", began_s,
                before_end=before_end, after_start=after_start, as_version=arguments.as_version, protocol=arguments.protocol,
            )  # fmt: skip

        control = self._control = ClusterControl(make, self._expire_from_thread, deferToThread)
        await deferToThread(control.brokers.start_all, arguments.start_timeout)
        port = self._reactor.listenTCP(0, ControlFactory(self._reactor, control), interface=HOST)
        write_whole(str(self._directory / "control"), f"http://{HOST}:{port.getHost().port}")
        write_whole(str(self._directory / "ready"), "\n".join(f"{HOST}:{each.port}" for each in control.brokers.all()))

    async def _expire(self, broker: ClusterBroker) -> None:
        """End the session of a broker, as when it has sent nothing for too long. A broker that is not paused has another one then."""
        assert self._server is not None and self._trees is not None
        path, reader = node_paths.broker(broker.id), self._trees.session()
        try:
            before = await reader.exists(path)
            if before is None or not self._server.expire(before.ephemeral_owner):
                raise KitError(f"broker {broker.id} has no session: start it first")
            late_s = self._reactor.seconds() + EXPIRE_S
            while not _has_ended(before, await reader.exists(path), returns=broker.answers):
                if self._reactor.seconds() > late_s:
                    raise KitError(
                        f"broker {broker.id} has no new session {EXPIRE_S:g} s after the end of its session: "
                        "the log of the cluster may say why; kill the broker and start it again"
                    )
                await deferLater(self._reactor, LOOK_S)
        finally:
            await reader.close()

    def _expire_from_thread(self, broker: ClusterBroker) -> None:
        call: Any = blockingCallFromThread
        call(self._reactor, lambda: ensureDeferred(self._expire(broker)))

    def _watched_ended(self) -> None:
        self._watched_has_ended = True
        self._reactor.stop()

    def _not_started(self, failure: Failure) -> None:
        if not self._is_stopping:
            known = failure.check(KitError, StartError, StorageError)
            text = failure.getErrorMessage() if known else f"internal error: {failure.getTraceback()}"
            for line in text.removeprefix("the broker did not start: ").split("\n"):
                print(f"txbroker: {line}", file=sys.stderr, flush=True)
            self.exit_status = FAILED
            self._reactor.stop()

    @property
    def _is_removed(self) -> bool:
        """Whether nothing is kept."""
        return self._watched_has_ended and bool(self._arguments.remove)

    async def _stop(self) -> None:
        self._is_stopping = True
        (self._directory / "ready").unlink(missing_ok=True)
        if self._control is not None:
            brokers = self._control.brokers
            await deferToThread(brokers.kill_all if self._is_removed else brokers.stop_all)
        if self._server is not None and self._trees is not None:
            await self._server.sessions_ended(SESSIONS_END_S)
            await self._trees.close()
        if self._is_removed:
            shutil.rmtree(self._directory, ignore_errors=True)


def _metadata(data: str, brokers: int, first_id: int) -> str:
    """The path of the metadata; StartError if there is data that does not fit."""
    disk = OsDisk()
    found = check_process_data(disk, [data], brokers, first_id)
    make_directory(disk, os.path.dirname(found.metadata))
    return found.metadata


def _has_ended(before: Stat, now: Stat | None, *, returns: bool) -> bool:
    """Whether a session has ended and, if its broker returns, another one has begun."""
    return now.czxid != before.czxid if now is not None else not returns


def main() -> int:
    """Run until SIGTERM or the end of the watched process; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m txbroker.testing.cluster_server", description=__doc__)
    parser.add_argument("--ports", required=True, help="of the brokers, comma-separated; 0 takes a free one")
    parser.add_argument("--data", required=True, help="the directory of the data")
    parser.add_argument("--start-timeout", type=float, required=True, metavar="SECONDS", help="for each broker")
    parser.add_argument("--protocol", default=PLAINTEXT, help="the security protocol of clients")
    parser.add_argument("--as-version", metavar="RELEASE", help="the release of Kafka that clients see")
    parser.add_argument("--directory", required=True, help="of this cluster")
    parser.add_argument("--stop-with", type=int, required=True, metavar="PID", help="stop when this process has ended")
    parser.add_argument("--remove", action="store_true", help="remove the directory if the cluster stops because that process has ended")
    parser.add_argument("--control", action="store_true", help="ignored: there always is a control port")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="a setting of all brokers")
    arguments = parser.parse_args()
    write_log(sys.stderr, TEXT, parse_levels([]))
    log_twisted()
    reactor = monotonic_reactor()
    reactor.suggestThreadPoolSize(THREADS)
    server = ClusterServer(reactor, arguments)
    reactor.callWhenRunning(server.start)
    reactor.run()
    return server.exit_status


if __name__ == "__main__":
    sys.exit(main())
