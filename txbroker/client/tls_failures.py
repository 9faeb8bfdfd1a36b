"""The errors of connections with TLS, for people."""

from __future__ import annotations

import ssl
from enum import Enum

from txbroker.client.client_errors import ConnectionFailed, reason_text

RENEW = "replace the certificate in the key store of the broker, for example with `txbroker secure renew`"


class Flaw(Enum):
    """Why a client does not accept the certificate of a broker; the value says what to do."""

    NOT_YET_VALID = "correct the clock of this machine or of the one that made the certificate, or replace the certificate"
    ENDED = f"{RENEW}; or correct the clock of this machine"
    OTHER_HOST = (
        "connect to one of its names, set advertised.listeners to one, or make a certificate with this host as a subject alternative name"
    )
    UNTRUSTED = (
        "add the certificate of its issuer to ssl.truststore.location of the client; if that is an intermediate authority, the broker must"
        " send its certificate: add it to the key store"
    )
    OTHER = "correct ssl.truststore.location, or the key store of the broker"


# The codes of OpenSSL (X509_V_ERR_...).
_FLAWS = {9: Flaw.NOT_YET_VALID, 10: Flaw.ENDED, 62: Flaw.OTHER_HOST, 64: Flaw.OTHER_HOST,
          **dict.fromkeys((2, 18, 19, 20, 21), Flaw.UNTRUSTED)}  # fmt: skip


class CertificateRefused(ConnectionFailed):
    """This client does not accept the certificate of the broker. `reason`: OpenSSL's."""

    def __init__(self, address: str, reason: str, flaw: Flaw) -> None:
        self.reason = reason
        self.flaw = flaw
        super().__init__(f"the certificate of {address} is not accepted: {reason}; {flaw.value}")


def tls_failed(address: str, error: OSError) -> ConnectionFailed:
    """Why a connection with TLS failed, and what to correct."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message or reason_text(error)
        return CertificateRefused(address, reason.rstrip("."), _FLAWS.get(error.verify_code, Flaw.OTHER))
    reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else reason_text(error)
    return ConnectionFailed(f"TLS with {address} failed: {reason}; check that the listener has TLS, and the ssl. properties")
