"""Durations, times, sizes and bytes as text for people."""

from __future__ import annotations

import base64
import re
import time
from contextlib import suppress

_STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_UNITS = ("B", "kB", "MB", "GB", "TB")
_CONTROL_CHARACTERS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


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


def size_text(count: int) -> str:
    """Bytes for people, in powers of 1000."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 99.5 else f"{value:.1f} {_UNITS[unit]}"


def visible(text: str) -> str:
    """Text with control characters escaped, so that names that others have chosen cannot control the terminal."""
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def json_value(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as a JSON value: text if they are UTF-8 without control characters (but tabs and line ends), else {"base64": ...}."""
    if data is None:
        return None
    if _CONTROL_CHARACTERS.search(data) is None:
        with suppress(UnicodeDecodeError):
            return data.decode()
    return {"base64": base64.b64encode(data).decode()}
