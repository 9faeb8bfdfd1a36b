"""How long certificates are valid."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txbroker.tls.certificates import Certificate


def days_left(certificate: Certificate, now_ms: int) -> float:
    """How long a certificate is valid; negative once it has ended."""
    return (certificate.not_after_ms - now_ms) / 86_400_000


def shown_time(time_ms: int) -> str:
    """A time in ms since 1970, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
