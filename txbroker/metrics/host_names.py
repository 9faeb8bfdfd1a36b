"""Which names a request to the metrics port may use for it, in its Host header.

A page of another site in a browser on the same machine can give its own name the address 127.0.0.1 and then read what answers there (DNS
rebinding). The Host header has that name. A port that is open to other machines has names that the broker does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

LOCAL = "localhost"
_PORT = re.compile(r":[0-9]{0,5}$")


class HostNames:
    """The names of a port that is bound to the address `bound`; `names` are the configured ones."""

    def __init__(self, bound: str, names: Iterable[str] = ()) -> None:
        self._names = {_name(name) for name in names}
        self._are_checked = bool(self._names) or _is_loopback(bound)
        self._names.add(LOCAL)

    def allow(self, hosts: Sequence[str]) -> bool:
        """Whether a request with these Host headers is served: addresses, localhost and configured names. HTTP/1.0 needs no such header."""
        return not self._are_checked or all(_is_address(name) or name in self._names for name in map(_name, hosts))


def _name(host: str) -> str:
    """The name of a Host header, without port and brackets."""
    return _PORT.sub("", host.strip()).removeprefix("[").removesuffix("]").removesuffix(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(bound: str) -> bool:
    return bound.lower() == LOCAL or (_is_address(bound) and ip_address(bound).is_loopback)
