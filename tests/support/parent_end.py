"""Children that end with the process of the tests, also when that is killed."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl  # loaded before a child is forked


def end_with_parent() -> None:
    """For `preexec_fn`: the child gets SIGTERM when the thread that starts it ends, which is at the latest the end of its process."""
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
