"""The main program of Python drivers: runs the requested features one after the other, and prints a line of JSON for each."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable

from compat.adapter import Client
from compat.living import LIVING
from compat.matrix import CLIENTS, FEATURES
from compat.saying import attempt, introduce
from compat.security.cases import Secured
from compat.security.cases import read as secured_cases
from compat.simple import SIMPLE
from compat.transactional import TRANSACTIONAL

_KNOWN = SIMPLE | LIVING | TRANSACTIONAL


def drive(adapter: type[Client], secured: Callable[[Secured], None] | None = None) -> None:
    """Run the features named on the command line (`HOST:PORT,... [FEATURE ...]`), or all.

    If the environment names a file of cases, `secured` tries these instead: it produces a record and consumes one, or raises the client's
    own error.
    """
    address, *names = sys.argv[1:]
    if secured is not None and (cases := secured_cases()):
        introduce(adapter.name, adapter.version)
        for case in cases:
            attempt(case.name, functools.partial(secured, case))
        return
    client = adapter(address)
    introduce(client.name, client.version)
    for name in names or FEATURES[CLIENTS]:
        topic = f"compat-{client.name}-{name}-{time.time_ns() // 1_000_000}".replace(" ", "-")
        attempt(name, functools.partial(_KNOWN[name], client, topic))
    client.close()
