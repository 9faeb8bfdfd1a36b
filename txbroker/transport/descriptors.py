"""The limit of file descriptors for connections: some are reserved for logs, without which the broker cannot serve any client."""

from __future__ import annotations

import os
import resource
import sys

# Reserved for segments and indexes: this part of all descriptors of the process (RLIMIT_NOFILE), but at least RESERVED_MIN, or half of
# them if there are fewer than twice as many.
RESERVED_PART = 4
RESERVED_MIN = 256


class Descriptors:
    """Computes how many descriptors are left for connections."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit`: of all descriptors of the process; None for RLIMIT_NOFILE."""
        if limit is None:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        reserved = max(limit // RESERVED_PART, min(RESERVED_MIN, limit // 2))
        self._end = sys.maxsize if limit == resource.RLIM_INFINITY else limit - reserved

    def room(self) -> int:
        """How many more may be opened now: those above the lowest free descriptor count as free."""
        try:
            lowest_free = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        os.close(lowest_free)
        return max(self._end - lowest_free, 0)
