"""Debian's package index as records: one per package, with its name as key and its stanza as value."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

from compat.demo.failure import DemoFailed

Package = tuple[bytes, bytes]  # name, stanza

_FIRST_FIELD = b"Package: "


def read_packages(say: Callable[[str], None]) -> list[Package]:
    """Every package that apt knows, in its order. Runs `apt-get update` if the list is empty and this user may; otherwise DemoFailed."""
    if shutil.which("apt-cache") is None:
        raise DemoFailed("apt-cache is not installed, and this demonstration needs its package index: run it on Debian or Ubuntu, "
                         "or in a container of one of them")
    packages = _dump()
    if not packages and os.geteuid() == 0:
        say("apt's package lists are empty: apt-get update")
        subprocess.run(["apt-get", "update", "-q"], stdout=subprocess.DEVNULL, check=False)
        packages = _dump()
    if not packages:
        raise DemoFailed("apt-cache dumpavail lists no package: run `apt-get update` as root first, with a network")
    return packages


def _dump() -> list[Package]:
    ended = subprocess.run(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, check=False)
    return parse(ended.stdout)


def parse(index: bytes) -> list[Package]:
    """The stanzas of a package index, separated by empty lines; stanzas without a name are skipped."""
    packages = []
    for stanza in index.split(b"\n\n"):
        text = stanza.strip(b"\n")
        first, _, _ = text.partition(b"\n")
        if first.startswith(_FIRST_FIELD):
            packages.append((first.removeprefix(_FIRST_FIELD).strip(), text + b"\n"))
    return packages
