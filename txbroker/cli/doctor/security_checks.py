"""Checks of TLS and logins at a broker's address: its certificate, its authority, names, dates, mechanisms and users."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from datetime import UTC, datetime
from typing import NamedTuple

from txbroker.cli.doctor.findings import Findings
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import Closed, ConnectionFailed, LoginRefused, address_text
from txbroker.client.client_machine import ClientSettings
from txbroker.client.client_security import PLAIN, ClientSecurity
from txbroker.client.tls_failures import RENEW, CertificateRefused, Flaw
from txbroker.tls import der
from txbroker.tls.certificates import Certificate, distinguished_name, read_certificate
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import TlsProblem, TlsSettings

SOON_DAYS = 30
PROBE_TIMEOUT_S = 4.0
DAY_MS = 86_400_000
_DNS, _ADDRESS = 0x82, 0x87  # GeneralName: [2] dNSName, [7] iPAddress


class Problem(NamedTuple):
    """What is wrong, and what to do."""

    found: str
    advice: str


def check_connected(findings: Findings, connection: BlockingConnection, host: str, port: int, now_ms: int) -> None:
    """Findings about a connection that works: its certificate ends soon, or a password is sent without TLS."""
    security, address = connection.machine.settings.security, address_text(host, port)
    if security is None:
        return
    if isinstance(connection.socket, ssl.SSLSocket):
        shown = connection.socket.getpeercert(binary_form=True)
        own = None if shown is None else read_certificate(shown)
        if own is not None:
            days = (own.not_after_ms - now_ms) / DAY_MS
            found = f"{own.subject}, valid until {_date(own.not_after_ms)}; {connection.socket.version()}"
            if days < SOON_DAYS:
                findings.warning(f"certificate of {address}", f"{found}: it ends in {max(days, 0):.0f} days", RENEW)
            else:
                findings.ok(f"certificate of {address}", found)
    elif security.sasl is not None and security.sasl.mechanism == PLAIN and not _is_loopback(connection):
        found = f"the password of {security.sasl.user} is sent to {address} without encryption"
        findings.warning(f"login at {address}", found, "use SASL_SSL, or a SCRAM mechanism")


def explain(problem: ConnectionFailed, host: str, address: str, port: int, security: ClientSecurity | None, now_ms: int) -> Problem | None:
    """Why a connection with these properties of a client fails; None if that has another reason. `address`: of the host."""
    if isinstance(problem, LoginRefused):
        return _login(problem)
    if security is None or security.tls is None:
        return None
    try:
        client_context(security.tls)
    except TlsProblem as wrong:
        return Problem(str(wrong), "correct the properties of the client")
    if _names_certificate(problem) or (isinstance(problem, Closed) and _requires_certificate(address, port)):
        what = "accepts no certificate of this client" if security.tls.keystore is not None else "requires a certificate of the client"
        advice = "set ssl.keystore.location and its type and password to a certificate that the trust store of the listener accepts"
        return Problem(f"{address_text(host, port)} {what} ({problem})", advice)
    shown = _shown_certificate(address, port)
    if shown is None:
        return _without_tls(host, address, port)
    return _certificate(problem, shown, host, port, security.tls, now_ms)


def _login(problem: LoginRefused) -> Problem:
    if "does not support the SASL mechanism" in str(problem):
        advice = "set sasl.mechanism to one that the listener offers, or add it to sasl.enabled.mechanisms of the broker"
        return Problem(str(problem), advice)
    return Problem(str(problem), "correct user and password in sasl.jaas.config; the log of the broker has the reason")


def _requires_certificate(address: str, port: int) -> bool:
    """Whether the listener ends a connection without a certificate. A client that has sent something may see only that it is closed."""
    try:
        with socket.create_connection((address, port), PROBE_TIMEOUT_S) as plain, _unverified().wrap_socket(plain) as secured:
            secured.recv(1)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        pass
    return False


def _names_certificate(problem: ConnectionFailed) -> bool:
    text = str(problem).upper().replace("_", " ")
    return "CERTIFICATE REQUIRED" in text or "ALERT HANDSHAKE FAILURE" in text or "ALERT UNKNOWN CA" in text or "ALERT BAD CERT" in text


def _certificate(
    problem: ConnectionFailed, own: Certificate, host: str, port: int, tls: TlsSettings, now_ms: int
) -> Problem:
    """Dates before names before authorities: OpenSSL reports only one."""
    certificate = f"the certificate of {address_text(host, port)} ({own.subject})"
    if now_ms < own.not_before_ms:
        found = f"{certificate} is valid from {_time(own.not_before_ms)} on; it is {_time(now_ms)} by the clock of this machine"
        return Problem(found, Flaw.NOT_YET_VALID.value)
    if now_ms > own.not_after_ms:
        found = f"{certificate} has ended at {_time(own.not_after_ms)}; it is {_time(now_ms)} by the clock of this machine"
        return Problem(found, Flaw.ENDED.value)
    names = host_names(own)
    if tls.verifies_host and not covers(names, host):
        return Problem(f"{certificate} is for {', '.join(names) or 'no host'}, and not for {host}", Flaw.OTHER_HOST.value)
    if not isinstance(problem, CertificateRefused):
        return Problem(f"{certificate} is not accepted: {problem}", Flaw.OTHER.value)
    if problem.flaw is Flaw.UNTRUSTED:
        store = "the certificates of the system, as ssl.truststore.location is not set" if tls.truststore is None else (
            tls.truststore.location or "ssl.truststore.certificates")  # fmt: skip
        return Problem(f"{certificate} was issued by {_issuer(own)}, which is not in {store}", problem.flaw.value)
    return Problem(f"{certificate} is not accepted: {problem.reason}", problem.flaw.value)


def _without_tls(host: str, address: str, port: int) -> Problem | None:
    """The listener may have no TLS: it answers a client without."""
    try:
        BlockingConnection(address, port, ClientSettings("txbroker-doctor", connect_timeout_s=4.0, request_timeout_s=5.0)).close()
    except ConnectionFailed:
        return None
    advice = "set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or correct the port: another listener may have TLS"
    return Problem(f"{address_text(host, port)} is a listener without TLS, and the client has security.protocol with TLS", advice)


def _shown_certificate(address: str, port: int) -> Certificate | None:
    """What the listener shows, unverified; None without TLS."""
    try:
        with socket.create_connection((address, port), PROBE_TIMEOUT_S) as plain, _unverified().wrap_socket(plain) as secured:
            shown = secured.getpeercert(binary_form=True)
    except OSError:
        return None
    try:
        return None if shown is None else read_certificate(shown)
    except der.Malformed:
        return None


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def host_names(certificate: Certificate) -> list[str]:
    """The names and addresses of hosts in a certificate, sorted."""
    names = []
    for encoded in certificate.alternative_names:
        element = next(der.elements(encoded))
        if element.tag == _DNS:
            names.append(element.content.decode("ascii", "replace"))
        elif element.tag == _ADDRESS and len(element.content) in (4, 16):
            names.append(str(ipaddress.ip_address(bytes(element.content))))
    return sorted(names)


def covers(names: list[str], host: str) -> bool:
    """Whether one of the names is the host, or a wildcard for its last labels (RFC 6125)."""
    try:
        return str(ipaddress.ip_address(host)) in names
    except ValueError:
        wanted = host.rstrip(".").lower()
        _, dot, rest = wanted.partition(".")
        return any(name.lower() == wanted or (dot and name.lower() == f"*.{rest}") for name in names)


def _issuer(certificate: Certificate) -> str:
    return distinguished_name(der.only(certificate.issuer, der.SEQUENCE))


def _is_loopback(connection: BlockingConnection) -> bool:
    return ipaddress.ip_address(str(connection.socket.getpeername()[0]).partition("%")[0]).is_loopback


def _date(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
