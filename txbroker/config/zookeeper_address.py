"""The value of `zookeeper.connect`: servers and a path, read as ZooKeeper's own client reads it (ConnectStringParser, PathUtils)."""

from __future__ import annotations

import re
from typing import NamedTuple

DEFAULT_PORT = 2181
FORM = "HOST:PORT[,HOST:PORT...][/PATH]"

_IN_BRACKETS = re.compile(r"\[([^\[\]]+)\](?::(.+))?")
# Characters that PathUtils refuses.
_NOT_IN_PATHS = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class ZooKeeperAddress(NamedTuple):
    """`servers`: host:port each, IPv6 in brackets. `chroot`: "" or a path that begins with / and does not end with it."""

    servers: tuple[str, ...]
    chroot: str


def parse_zookeeper_address(text: str) -> ZooKeeperAddress:
    """Servers without a port have the default one; empty entries and blanks around entries are skipped. ValueError with the reason."""
    listed, slash, path = text.partition("/")
    servers = tuple(_server(entry) for part in listed.split(",") if (entry := part.strip()))
    if not servers:
        raise ValueError("it names no server")
    chroot = slash + path if path else ""
    if chroot and (_NOT_IN_PATHS.search(chroot) or {"", ".", ".."} & set(path.split("/"))):
        raise ValueError(f"{chroot} is not a path of ZooKeeper")
    return ZooKeeperAddress(servers, chroot)


def _server(entry: str) -> str:
    bracketed = _IN_BRACKETS.fullmatch(entry)
    if bracketed is not None:
        host, port = bracketed.group(1), bracketed.group(2) or str(DEFAULT_PORT)
    else:
        host, _, port = entry.rpartition(":") if ":" in entry else (entry, "", "")
        host, port = host.rstrip(), port or str(DEFAULT_PORT)
    digits = port.removeprefix("+")
    if not (digits.isascii() and digits.isdecimal() and len(digits.lstrip("0")) <= 5 and int(digits) <= 65535):
        raise ValueError(f"{entry} has the port {port[:20]!r}, which is not a number from 0 to 65535")
    if not host or re.search(r"[\s\0\[\]]", host):
        raise ValueError(f"{entry} is not HOST:PORT")
    return f"{f'[{host}]' if ':' in host else host}:{int(digits)}"
