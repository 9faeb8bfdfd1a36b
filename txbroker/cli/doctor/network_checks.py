"""From a name to a broker that answers: DNS, TCP, and what it is that listens there if it is no Kafka broker."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
import threading
from typing import NamedTuple

from txbroker.cli.doctor.findings import Findings
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import Closed, ConnectionFailed, NotKafka, Silent, TlsExpected, TooOld, Unreachable, address_text
from txbroker.client.client_machine import ClientSettings

NAMES_TIMEOUT_S = 5.0
CLIENT = ClientSettings("txbroker-doctor", connect_timeout_s=4.0, request_timeout_s=5.0, in_flight_max=1)
PROBE_TIMEOUT_S = 2.0


class Resolved(NamedTuple):
    """The addresses of a name, in the system's order; `problem` when there are none."""

    addresses: list[str]
    problem: str


def resolve(host: str) -> Resolved:
    """Ask the system's resolver, which may take long: no longer than NAMES_TIMEOUT_S."""
    outcome: list[Resolved] = []

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            outcome.append(Resolved(list(dict.fromkeys(str(address[0]) for *_, address in found)), ""))
        except (OSError, UnicodeError) as error:
            outcome.append(Resolved([], getattr(error, "strerror", None) or str(error)))

    thread = threading.Thread(target=ask, daemon=True)  # it cannot be ended: the process does not wait for it
    thread.start()
    thread.join(NAMES_TIMEOUT_S)
    return outcome[0] if outcome else Resolved([], f"no answer of the resolver within {NAMES_TIMEOUT_S:.0f} s")


def is_loopback(address: str) -> bool:
    """Whether an address leads to whoever uses it."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def reach(findings: Findings, what: str, host: str, port: int, blame: str) -> BlockingConnection | None:
    """A connection to a broker at this name, after as many findings as it takes; None when there is none.

    `what` is looked at (a bootstrap server, an advertised address); `blame` is what to correct if it is wrong.
    """
    place = address_text(host, port)
    check = f"{what} {place}"
    resolved = resolve(host)
    if not resolved.addresses:
        findings.failed(check, f"the name {host} does not resolve here ({resolved.problem})", f"{_name_advice(host)}, or correct {blame}")
        return None
    connections: list[BlockingConnection] = []
    problems: list[ConnectionFailed] = []
    for address in resolved.addresses:
        try:
            connections.append(BlockingConnection(address, port, CLIENT))
        except ConnectionFailed as problem:
            problems.append(problem)
    addresses = "" if resolved.addresses == [host] else f"resolves to {', '.join(resolved.addresses)}; "
    for connection in connections[1:]:
        connection.close()
    if not connections:
        # A connection that was made tells more than those that were refused.
        worst = min(problems, key=lambda failed: isinstance(failed, Unreachable))
        found, advice = diagnose(worst, resolved.addresses[problems.index(worst)], port, blame)
        findings.failed(check, addresses + found, advice)
        return None
    connection = connections[0]
    took = f"{addresses}connected in {connection.connect_ms:.1f} ms, and a broker answers"
    if problems:
        advice = f"clients that try that address first wait or fail; let the broker listen there, or set {blame} to {connection.address}"
        findings.warning(check, f"{took}; but {'; '.join(map(str, problems))}", advice)
    else:
        findings.ok(check, took)
    return connection


def _name_advice(host: str) -> str:
    if "." not in host and ":" not in host:
        return f"{host} looks like the name of a container or of a machine in another network: let clients resolve it (DNS, /etc/hosts)"
    return "let clients resolve it (DNS, /etc/hosts)"


def diagnose(problem: ConnectionFailed, host: str, port: int, blame: str) -> tuple[str, str]:
    """What is wrong at an address, and what to do about it."""
    place = address_text(host, port)
    if isinstance(problem, Unreachable):
        return _no_connection(problem, place, blame)
    if isinstance(problem, TooOld):
        return str(problem), "use a newer broker"
    received = problem.received if isinstance(problem, NotKafka | Closed) else b""
    kind = _TLS if isinstance(problem, TlsExpected) else _recognized(received) or _probe(host, port)
    if kind is not None:
        return f"{place} is {kind[0]}", kind[1].format(blame=blame)
    if isinstance(problem, Silent):
        advice = f"see whether something between drops what is sent (firewall, proxy, a port forwarded to nowhere), or correct {blame}"
        return f"{place} takes connections and says nothing for {CLIENT.request_timeout_s:.0f} s", advice
    if isinstance(problem, Closed) and not received:
        advice = (
            "the broker's log says why: perhaps it is still starting, the listener wants TLS or a client certificate, or "
            f"max.connections is reached; or something else listens there: correct {blame}"
        )
        return f"{place} closes the connection without an answer", advice
    return f"{place} speaks another protocol than Kafka's (it begins with {received[:24]!r})", f"correct {blame}"


def _no_connection(problem: Unreachable, place: str, blame: str) -> tuple[str, str]:
    error = problem.error
    if isinstance(error, ConnectionRefusedError):
        advice = f"start the broker, correct the port in {blame}, or, of a container, publish the port"
        return f"nothing listens at {place} (connection refused)", advice
    if isinstance(error, TimeoutError):
        advice = f"see whether the machine is on and a firewall lets the port through, or correct {blame}"
        return f"no answer from {place} within {CLIENT.connect_timeout_s:.0f} s", advice
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        advice = f"see whether this machine has a route there (VPN, container network, IPv6), or correct {blame}"
        return f"there is no way to {place} ({error.strerror})", advice
    return str(problem), f"correct {blame}"


_HTTP = ("an HTTP server", "correct the port in {blame}: perhaps that is a web interface, a REST proxy or a metrics port")
_TLS = (
    "a listener that wants TLS",
    "clients need security.protocol=SSL or SASL_SSL there; name the broker's PLAINTEXT listener here: this command does not speak TLS",
)
_ZOOKEEPER = (
    "a ZooKeeper server",
    "correct {blame}: clients connect to brokers (port 9092 as a rule), ZooKeeper is for the brokers themselves",
)
_SSH = ("an SSH server", "correct the port in {blame}")


def _recognized(received: bytes) -> tuple[str, str] | None:
    """What speaks like that."""
    if received.startswith((b"HTTP", b"<htm", b"<!DO")):
        return _HTTP
    if received.startswith(b"SSH-"):
        return _SSH
    return None


def _probe(host: str, port: int) -> tuple[str, str] | None:
    """Speak other protocols to it, one connection each."""
    answer = _say(host, port, b"GET / HTTP/1.0\r\n\r\n")
    known = _recognized(answer)
    if known is not None:
        return known
    # One of ZooKeeper's commands of four letters: it answers, or says that it must not, or that it is not serving yet.
    answer = _say(host, port, b"srvr").lower()
    if b"zookeeper" in answer or b"whitelist" in answer:
        return _ZOOKEEPER
    return _TLS if _speaks_tls(host, port) else None


def _say(host: str, port: int, data: bytes) -> bytes:
    try:
        with socket.create_connection((host, port), PROBE_TIMEOUT_S) as connection:
            connection.sendall(data)
            return connection.recv(200)
    except OSError:
        return b""


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), PROBE_TIMEOUT_S) as connection, context.wrap_socket(connection):
            return True
    except ssl.SSLError as error:
        # It answered in TLS, and did not like something: a client certificate that we lack, an old version.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
