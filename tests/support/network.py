"""Hosts of one machine in network namespaces, whose packets to each other a test can drop.

Namespaces and mounts need a process that owns them: `enter` starts the program again inside, as root or in a user namespace. They end
with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

_INSIDE = "TXBROKER_TEST_NETWORK"
_PREFIX = "10.77.0"
# No host has it: packets to this address arrive nowhere.
_NOWHERE = "02:00:00:00:00:00"
_UNSHARE = ("unshare", "--net", "--mount", "--fork", "--kill-child")


def inside() -> bool:
    """Whether this process may make a `Network`, and mount file systems."""
    return _INSIDE in os.environ


def enter(module: str, arguments: Sequence[str]) -> str:
    """Run `python -m module arguments` in namespaces of its own in place of this process; why not, if the machine does not allow that."""
    problems = []
    for way in (_UNSHARE, (*_UNSHARE, "--user", "--map-root-user")):
        if shutil.which(way[0]) is None:
            return f"{way[0]} is not installed"
        tried = subprocess.run([*way, "sh", "-c", "mount -t tmpfs tmpfs /run && ip link add hub type bridge"],
                               capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            os.execvpe(way[0], [*way, sys.executable, "-m", module, *arguments], {**os.environ, _INSIDE: "1"})
        problems.append(tried.stderr.strip())
    return f"{problems[0]}; in a user namespace: {problems[1]}"


class Network:
    """This process is at 10.77.0.1; each host has an address and reaches this process and the other hosts.

    Packets are dropped silently and in one direction, as by a switch that fails: neither side sees an error.
    """

    def __init__(self) -> None:
        assert inside()
        self._addresses: dict[str, str] = {}
        self.dropped: set[tuple[str, str]] = set()
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "hub", "type", "bridge")
        _run("ip", "address", "add", f"{_PREFIX}.1/24", "dev", "hub")
        _run("ip", "link", "set", "hub", "up")

    def host(self, name: str) -> tuple[str, tuple[str, ...]]:
        """The address of a host, which is made at the first call, and the beginning of a command line that runs a program there."""
        if name not in self._addresses:
            number = len(self._addresses) + 2
            self._addresses[name] = f"{_PREFIX}.{number}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", f"port{number}", "master", "hub", "up")
            _run("ip", "-n", name, "address", "add", f"{self._addresses[name]}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
        return self._addresses[name], ("nsenter", f"--net=/run/netns/{name}", "--")

    def drop(self, source: str, target: str) -> None:
        """Drop what one host sends to another."""
        _run("ip", "-n", source, "neighbor", "replace", self._addresses[target], "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")
        self.dropped.add((source, target))

    def restore(self) -> None:
        """Drop nothing any more."""
        for source, target in self.dropped:
            _run("ip", "-n", source, "neighbor", "delete", self._addresses[target], "dev", "eth0")
        self.dropped.clear()


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}: {ended.stderr.strip()}"
