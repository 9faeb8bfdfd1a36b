"""`python -m txbroker.cluster.tree.session_guard`: a process that ends the ZooKeeper session of a broker when the broker's process ends.

A killed broker otherwise keeps its registration, and the leadership of its partitions, until its session expires. The process reads JSON
lines from its standard input: null, or the session that the broker has now:

    {"servers": "host:port,...", "timeout_ms": 18000, "session": 72057, "password": "hexadecimal digits", "security": [null, null]}

The broker holds the only other end of this pipe. The input therefore ends when the broker's process has ended, and no earlier: the system
closes its descriptors then. A broker that hangs keeps its session. The last line decides what is done at the end.

The process imports the ZooKeeper client only at the end: until then it costs about 3 MB.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from txbroker.platform import system

LINE_BYTES_MAX = 1 << 16


def main() -> None:
    """Wait for the broker's end, then end its session."""
    # A signal to the whole group, as Ctrl-C sends it, is for the broker.
    for number in system.ending_signals:
        signal.signal(number, signal.SIG_IGN)
    session = _last_session(0)
    if session is not None:
        _report(_end(session))


def _last_session(descriptor: int) -> dict[str, Any] | None:
    """Read lines until the input ends. A line that the broker could not finish does not count."""
    last, rest = b"null", b""
    while received := os.read(descriptor, LINE_BYTES_MAX):
        *lines, rest = (rest + received).split(b"\n")
        last = lines[-1] if lines else last
        if len(rest) > LINE_BYTES_MAX:
            raise SystemExit("the broker has sent a line that is too long")
    found = json.loads(last)
    return found if isinstance(found, dict) else None


def _end(session: dict[str, Any]) -> str:
    """Connect to the session and close it. Returns what has happened."""
    from txbroker.cluster.tree.kazoo_session import KazooSession, SessionState
    from txbroker.cluster.tree.zookeeper_security import of_json

    states: SimpleQueue[SessionState] = SimpleQueue()

    security = of_json(session["security"])

    def call(function: Any, *arguments: Any) -> None:
        function(*arguments)

    kazoo = KazooSession(
        session["servers"],
        session["timeout_ms"],
        call_from_thread=call,
        on_state=states.put,
        credentials=(session["session"], bytes.fromhex(session["password"])),
        tls=security.context(),
        sasl=security.sasl_options(),
    )
    kazoo.start()
    name = f"its ZooKeeper session {session['session']:#x}"
    state = SessionState.SUSPENDED
    try:
        while state is SessionState.SUSPENDED:
            state = states.get(timeout=session["timeout_ms"] / 1000)
    except Empty:
        return f"no ZooKeeper server answers at {session['servers']}, and {name} expires"
    kazoo.stop()
    return f"{name} is closed" if state is SessionState.CONNECTED else f"{name} had already expired"


def _report(what: str) -> None:
    with suppress(OSError):  # the broker's standard error may have no reader any more
        print(f"The broker's process has ended: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
