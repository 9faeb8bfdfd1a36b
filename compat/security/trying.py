"""A client's outcome of each case, in the client's own words, without what differs from run to run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from compat.clients import Client
from compat.matrix import NO, YES, Row
from compat.running import run_client
from compat.security.brokers import SecuredBroker
from compat.security.cases import FILE_VARIABLE

OK, ABSENT = "ok", "-"
_REPLACED = [(re.compile(pattern), text) for pattern, text in (
    (r"\bgroup-\d+", "GROUP"),
    (r"\b(localhost|127\.0\.0\.1):\d+", "HOST:PORT"),
    (r"\('localhost', \d+, <[^>]*>\)", "HOST:PORT"),
    (r"\b\d+(\.\d+)? ?(ms|s|µs)\b", "TIME"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)", "DATE"),
    (r"\b[0-9A-F]{16}:error:", "error:"),  # of Node: the thread
    (r" ?\(_ssl\.c:\d+\)", ""),  # of Python: the line
    (r"(\.\./)+deps/openssl/[\w/.-]+:\d+:", ""),  # of Node: the line
)]  # fmt: skip
# The alert by which a broker refuses a client's certificate: OpenSSL names the reason, Java's engine says mostly that it is bad. The same
# alerts have other names in other versions of OpenSSL.
_ALERTS = [(re.compile(pattern, re.IGNORECASE), text) for pattern, text in (
    (r"error:0A[0-9A-F]{6}:", "error:"),
    (r"(sslv3|tlsv13?|ssl/tls)[ _]alert[ _](bad[ _]certificate|certificate[ _](unknown|required|expired)|unknown[ _]ca)", "ALERT"),
    (r"(SSL alert number) \d+", r"\1 N"),
    (r"(fatal alert:) (bad_certificate|certificate_(unknown|required|expired)|unknown_ca)", r"\1 ALERT"),
    (r"(remote error: tls:) (bad certificate|unknown certificate( authority)?|certificate required|expired certificate)", r"\1 ALERT"),
)]  # fmt: skip


def outcomes(client: Client, broker: SecuredBroker, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The client's version, and by case OK, ABSENT with a reason, or its error."""
    row = run_client(client, broker.server.address, names, lambda name: None, environment={FILE_VARIABLE: str(broker.file_of(names))})
    return row.version, {name: _outcome(row, name) for name in names}


def _outcome(row: Row, name: str) -> str:
    cell, text = row.cells[name], row.details.get(name, "")
    if cell == YES:
        return OK
    return normal(text) if cell == NO else f"{ABSENT} {text}".strip()


def normal(text: str) -> str:
    """Without addresses, groups and times."""
    for pattern, instead in _REPLACED:
        text = pattern.sub(instead, text)
    return text


def same(text: str, other: str) -> bool:
    """Whether two outcomes differ in nothing but the name of an alert about the client's certificate."""
    return _without_alert(text) == _without_alert(other)


def _without_alert(text: str) -> str:
    for pattern, instead in _ALERTS:
        text = pattern.sub(instead, text)
    return text
