"""The main program of a broker for tests. `broker_process.py` starts it; it ends with the process that it is started for.

    python -m txbroker.testing.server --directory DIR --stop-with PID --override KEY=VALUE ...

In DIR are `data`, unless log.dirs names another directory, and `ready`: host:port, once clients are served. With `--control` there are
rules and a journal between the sockets and the broker, and `control` has the URL of their port; without it the broker is as any other.
"""

from __future__ import annotations

import sys

from txbroker.garbage_collection import GarbageCollection


def main() -> int:
    """Run until SIGTERM or the end of the watched process; the exit status."""
    GarbageCollection().begin()  # before the imports, which leave many objects and hardly any garbage
    from txbroker.testing.served_process import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
