"""Congestion control: no pacing between this machine and itself.

A system whose default is BBR sends no faster than it estimates the bandwidth to be, with timers (net/ipv4/tcp_bbr.c in Linux). That helps
in a network. Within one machine it only delays responses: a large fetch then takes a fifth more CPU.

A socket that has used BBR stays paced, so the choice is made on the listening socket, from which accepted ones inherit it, and taken
back for peers on other machines.
"""

from __future__ import annotations

import contextlib
import socket

from txbroker.platform import system

_PACED = {b"bbr"}

# In every Linux kernel, and allowed to every process.
_NOT_PACED = b"reno"

_NAME_BYTES_MAX = 16


def avoid_pacing(listening: socket.socket) -> bytes | None:
    """Let accepted connections begin without pacing. Returns the system's algorithm if it has one that paces, for `set_algorithm`."""
    if system.TCP_CONGESTION is None:
        return None
    try:
        name = listening.getsockopt(socket.IPPROTO_TCP, system.TCP_CONGESTION, _NAME_BYTES_MAX).rstrip(b"\0")
        if name not in _PACED:
            return None
        listening.setsockopt(socket.IPPROTO_TCP, system.TCP_CONGESTION, _NOT_PACED)
    except OSError:
        return None  # a system without this option
    return name


def set_algorithm(connected: socket.socket, name: bytes) -> None:
    """Give a connection from another machine the system's algorithm, which `avoid_pacing` has returned."""
    assert system.TCP_CONGESTION is not None
    with contextlib.suppress(OSError):  # it is closed already
        connected.setsockopt(socket.IPPROTO_TCP, system.TCP_CONGESTION, name)
