"""`ssl.cipher.suites`: the names of IANA, as Java uses them, in the names of OpenSSL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# Python's ssl module cannot disable one of these alone.
TLS_1_3 = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})

_SUITE = re.compile(
    r"TLS_(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_(?:AES_(128|256)_(GCM|CBC)_(SHA(?:256|384)?)|(CHACHA20_POLY1305)_SHA256)"
)
_EXCHANGES = {"ECDHE_ECDSA": "ECDHE-ECDSA-", "ECDHE_RSA": "ECDHE-RSA-", "DHE_RSA": "DHE-RSA-", "RSA": ""}


class CipherSuites(NamedTuple):
    """`tls_1_2`: a list for OpenSSL, empty for none. `tls_1_3`: whether the suites of TLS 1.3 are among them."""

    tls_1_2: str
    tls_1_3: bool


def cipher_suites(names: Sequence[str]) -> CipherSuites | None:
    """None for no names: the defaults. ValueError for an unknown name, and for some but not all suites of TLS 1.3."""
    if not names:
        return None
    new = TLS_1_3.intersection(names)
    if new and new != TLS_1_3:
        missing = ", ".join(sorted(TLS_1_3 - new))
        raise ValueError(f"has some suites of TLS 1.3, of which only all or none can be enabled: add {missing}")
    return CipherSuites(":".join(_openssl(name) for name in names if name not in new), bool(new))


def _openssl(name: str) -> str:
    match = _SUITE.fullmatch(name)
    if match is None:
        raise ValueError(f"has {name}, which is not supported; use suites such as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    exchange, bits, mode, digest, chacha = match.groups()
    if chacha:
        return f"{_EXCHANGES[exchange]}CHACHA20-POLY1305"
    return f"{_EXCHANGES[exchange]}AES{bits}-{'GCM-' if mode == 'GCM' else ''}{digest}"
