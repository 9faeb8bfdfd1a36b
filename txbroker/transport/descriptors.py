"""How many file descriptors connections may take: logs need some too, and a broker that cannot open its files serves nobody."""

from __future__ import annotations

import os
import resource
import sys

# Logs open segments and indexes while clients are connected. Kept for them, of all descriptors that the process may have
# (RLIMIT_NOFILE): one of so many, but at least so many, or half where there are fewer than twice that.
RESERVED_PART = 4
RESERVED_MIN = 256


class Descriptors:
    """Tells what is left for connections, whatever holds the others."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit`: of all descriptors of the process; the system's if None."""
        if limit is None:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        reserved = max(limit // RESERVED_PART, min(RESERVED_MIN, limit // 2))
        self._end = sys.maxsize if limit == resource.RLIM_INFINITY else limit - reserved

    def room(self) -> int:
        """How many more may be opened now; fewer than that if there are some open above the lowest free one."""
        try:
            lowest_free = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        os.close(lowest_free)
        return max(self._end - lowest_free, 0)
