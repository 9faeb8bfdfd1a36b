"""Durations and times as text."""

from __future__ import annotations

import time

_STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def duration(ms: int) -> str:
    """A duration, rounded down: `3 d 4 h`, `90 s`, `250 ms`."""
    for i, (size, unit) in enumerate(_STEPS):
        if ms >= size:
            whole, rest = divmod(ms, size)
            if i + 1 < len(_STEPS) and whole < 10:
                lesser, lesser_unit = _STEPS[i + 1]
                if rest >= lesser:
                    return f"{whole} {unit} {rest // lesser} {lesser_unit}"
            return f"{whole} {unit}"
    return f"{ms} ms"


def moment(ms: int) -> str:
    """A timestamp in UTC; a number of milliseconds if it is outside of the calendar."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms // 1000))
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms after 1970"
