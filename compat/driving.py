"""The main program of Python drivers: runs the requested features one after the other, and prints a line of JSON for each."""

from __future__ import annotations

import functools
import sys
import time

from compat.adapter import Client
from compat.living import LIVING
from compat.matrix import CLIENTS, FEATURES
from compat.saying import attempt, introduce
from compat.simple import SIMPLE
from compat.transactional import TRANSACTIONAL

_KNOWN = SIMPLE | LIVING | TRANSACTIONAL


def drive(adapter: type[Client]) -> None:
    """Run the features named on the command line (`HOST:PORT,... [FEATURE ...]`), or all."""
    address, *names = sys.argv[1:]
    client = adapter(address)
    introduce(client.name, client.version)
    for name in names or FEATURES[CLIENTS]:
        topic = f"compat-{client.name}-{name}-{time.time_ns() // 1_000_000}".replace(" ", "-")
        attempt(name, functools.partial(_KNOWN[name], client, topic))
    client.close()
