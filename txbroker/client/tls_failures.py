"""The errors of connections with TLS, for people."""

from __future__ import annotations

import ssl

from txbroker.client.client_errors import ConnectionFailed, reason_text


def tls_failed(address: str, error: OSError) -> ConnectionFailed:
    """Why a connection with TLS failed, and what to correct."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = "correct ssl.truststore.location, or the host name in --bootstrap-server and advertised.listeners"
        return ConnectionFailed(f"the certificate of {address} is not accepted: {error.verify_message}; {advice}")
    reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else reason_text(error)
    return ConnectionFailed(f"TLS with {address} failed: {reason}; check that the listener has TLS, and the ssl. properties")
