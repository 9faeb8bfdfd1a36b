"""Lets a paused broker go on when the process that it ends with has ended: SIGSTOP has stopped its own watch, too.

    python -I -S pause_guard.py WATCHED BROKER

It is a program of its own, for as long as the broker is paused. It imports little, and is there after some 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

LOOK_S = 0.2


def main(watched: int, broker: int) -> None:
    """Wait until one of the two processes has ended, and continue the broker."""
    try:
        _wait(watched, broker)
    except (AttributeError, PermissionError):  # a system without descriptors of processes, or a sandbox that refuses them
        while _exists(watched) and _exists(broker):
            time.sleep(LOOK_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(broker, signal.SIGCONT)


def _wait(watched: int, broker: int) -> None:
    try:
        of_broker = os.pidfd_open(broker)
    except ProcessLookupError:
        return
    with contextlib.suppress(ProcessLookupError):
        either = select.poll()
        either.register(of_broker, select.POLLIN)
        either.register(os.pidfd_open(watched), select.POLLIN)
        either.poll()
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(of_broker, signal.SIGCONT)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # of another user
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
