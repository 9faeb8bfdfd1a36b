"""Names of hosts in certificates; needs no package."""

from __future__ import annotations

import ipaddress
import re

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z)(\*\.)?{_LABEL}(\.{_LABEL})*")


def check_host(host: str) -> str:
    """A host name or an address, as a certificate can have it; ValueError."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        if _HOST.fullmatch(host) is None or re.fullmatch(r"[0-9.]+", host):
            raise ValueError(f"{host!r} is neither a host name in ASCII nor an IP address") from None
        return host
