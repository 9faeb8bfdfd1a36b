"""`python -m txbroker.tree_process SOCKET FILE`: serves the metadata tree of this file to the brokers of the machine.

It ends after its standard input, which ends when the process that has started it ends it, or has ended itself. The brokers may be stopping
then, and signals to the whole group are for them: they need the tree until their sessions have ended. It reports its state as to systemd.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import sys

from twisted.internet.defer import ensureDeferred
from twisted.internet.error import CannotListenError

from txbroker.child_processes import InputEnd, remove_temporary
from txbroker.cluster.tree.sqlite import SqliteTrees
from txbroker.cluster.tree.tree_server import TreeServer
from txbroker.errors import StartError
from txbroker.log_output import TEXT, parse_levels, write_log
from txbroker.platform import system

log = logging.getLogger("txbroker.cluster")

FAILED = 1
SOCKET_MODE = 0o600
SESSIONS_END_S = 30.0  # enough for two attempts of a controlled shutdown


def main(socket: str, file: str) -> int:
    """Serve until the standard input ends; returns the exit status."""
    for number in system.ending_signals:
        signal.signal(number, signal.SIG_IGN)
    write_log(sys.stderr, TEXT, parse_levels([]))
    from txbroker.broker_service import TREE_THREADS, log_twisted, monotonic_reactor, worker_pool
    from txbroker.supervisor import supervisor

    log_twisted()
    reactor = monotonic_reactor()
    state = supervisor(reactor)
    reactor.callWhenRunning(state.starting)
    try:
        trees = SqliteTrees(file, worker=worker_pool(reactor, "tree", TREE_THREADS))
    except StartError as error:
        print(f"txbroker: {error}", file=sys.stderr, flush=True)
        return FAILED
    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket)  # of a server that was killed: this process has the file open exclusively
    server = TreeServer(trees, reactor, random.random)
    try:
        port = reactor.listenUNIX(socket, server, mode=SOCKET_MODE)
    except CannotListenError as error:
        print(f"txbroker: the socket {socket} cannot be made: {error.socketError}", file=sys.stderr, flush=True)
        return FAILED

    async def end() -> None:
        state.stopping()
        try:
            await server.sessions_ended(SESSIONS_END_S)
            await port.stopListening()
            await trees.close()
        except Exception:
            log.exception("internal error while the server of the metadata stops")
        state.stopped()
        remove_temporary(os.path.dirname(socket))  # its owner may have been killed, and the brokers have stopped
        reactor.stop()

    InputEnd(reactor, lambda: ensureDeferred(end()))
    reactor.callWhenRunning(lambda: state.ready("serving the metadata"))
    reactor.run(installSignalHandlers=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
