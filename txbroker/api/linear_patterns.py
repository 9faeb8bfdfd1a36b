"""Regular expressions of clients, matched in linear time by RE2 (Kafka uses RE2/J): Python's own can take exponential time.

The library, google-re2, is optional (the extra `patterns`). What needs it is not served without it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from txbroker.errors import BrokerError, ErrorCode

_LIBRARY = "re2"


def is_available() -> bool:
    """Whether the library is installed. It is not loaded before it is needed."""
    return find_spec(_LIBRARY) is not None


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text matches the pattern as a whole; BrokerError INVALID_REGULAR_EXPRESSION."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error:
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern[:100]!r} is not a regular expression of RE2") from None
    return lambda text: compiled.fullmatch(text) is not None
