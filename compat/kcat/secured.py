"""kcat on a secured listener."""

from __future__ import annotations

import subprocess

from compat.adapter import Unsupported
from compat.kcat.processes import settings
from compat.security.cases import PATIENCE_S, Secured

_ERRORS = ("% ERROR", "% Delivery failed", "% Fatal")


class KcatFailed(Exception):
    """The first error that kcat prints before it ends."""


def exchange(case: Secured) -> None:
    """Produce a record, and consume one as the only member of a group. kcat ends at the first error."""
    if case.token:
        raise Unsupported("it takes no token, but only where to get one")
    _run(case, "-P", "-t", case.topic, stdin=b"secured")
    _run(case, "-c", "1", "-X", "auto.offset.reset=earliest", "-G", case.group, case.topic)


def _run(case: Secured, *arguments: str, stdin: bytes | None = None) -> None:
    command = ["kcat", "-b", case.address, *settings(_settings(case)), *arguments]
    ended = subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE_S, check=False)
    if ended.returncode != 0:
        lines = ended.stderr.decode(errors="replace").splitlines()
        raise KcatFailed(next((line for line in lines if line.startswith(_ERRORS)), "\n".join(lines)))


def _settings(case: Secured) -> dict[str, object]:
    values: dict[str, object] = {"security.protocol": case.protocol, "ssl.ca.location": case.ca}
    if case.certificate:
        values |= {"ssl.certificate.location": case.certificate, "ssl.key.location": case.key}
    if case.mechanism:
        values |= {"sasl.mechanisms": case.mechanism, "sasl.username": case.user, "sasl.password": case.password}
    return values
