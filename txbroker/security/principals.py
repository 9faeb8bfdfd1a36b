"""Principals, and the addresses of clients, in the text forms that ACLs have."""

from __future__ import annotations

import ipaddress

from txbroker.config.principals import split_principals

ANONYMOUS = "User:ANONYMOUS"  # a client that has not proved who it is

def check_principal(text: str) -> None:
    """ValueError unless this is "Type:name" (SecurityUtils.parseKafkaPrincipal). The name may contain colons."""
    if ":" not in text:
        raise ValueError(f"{text!r} is not a principal: use Type:name, such as User:alice")


def super_users(text: str | None) -> frozenset[str]:
    """The principals of super.users, which are separated by semicolons: distinguished names contain commas. ValueError."""
    users = split_principals(text or "")
    for user in users:
        check_principal(user)
    return frozenset(users)


def is_address(text: str) -> bool:
    """Whether this is an IP address, and no name or network."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def java_address(text: str) -> str:
    """An address as Java's InetAddress.getHostAddress prints it: `::1` is `0:0:0:0:0:0:0:1`, `::ffff:10.0.0.1` is `10.0.0.1`.

    Text that is no address is returned as it is.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    packed = address.packed
    groups = ":".join(f"{packed[i] << 8 | packed[i + 1]:x}" for i in range(0, 16, 2))
    return groups if address.scope_id is None else f"{groups}%{address.scope_id}"
