"""TLS handshakes with corrupted bytes, on the server's side of a connection, and client certificates with corrupted bytes."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.fuzz.frames import Pick, mutated
from tests.support.certificates import Authority
from txbroker.tls.listener_tls import ListenerTls
from txbroker.tls.settings import read_settings
from txbroker.transport.handshakes import failure_text
from txbroker.transport.tls_stream import server_channel

TEXT_MAX = 1000  # of the reason in the log
ROUNDS = 6


class Ends(NamedTuple):
    """Both sides of handshakes, and the certificate of the client."""

    server: ListenerTls
    clients: tuple[ssl.SSLContext, ...]
    certificate: bytes


@cache
def ends() -> Ends:
    """A listener that requires a certificate, and clients with each version of TLS."""
    with TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        own = authority.issue("client").pem()
        keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("server").pem()), "ssl.client.auth": "required",
                "ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.pem())}  # fmt: skip
        server = ListenerTls(read_settings(keys.get), "RULE:^CN=(.*?),.*$/$1/,DEFAULT", names_clients=True)
        clients = []
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cadata=authority.text())
            context.load_cert_chain(own)
            context.minimum_version = context.maximum_version = version
            clients.append(context)
        return Ends(server, tuple(clients), ssl.PEM_cert_to_DER_cert(_first_certificate(own.read_text())))


def _first_certificate(text: str) -> str:
    end = "-----END CERTIFICATE-----"
    return text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)] + "\n"


def run(pick: Pick) -> None:
    """One handshake, of which one flight of the client is corrupted, or one certificate. Nothing but the errors of TLS may be raised."""
    if pick(3) == 0:
        _certificate(pick)
        return
    server, clients, _ = ends()
    channel = server_channel(server.context)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = clients[pick(len(clients))].wrap_bio(incoming, outgoing, server_hostname="localhost")
    corrupted = pick(3)
    for flight in range(ROUNDS):
        _step(client.do_handshake)
        data = outgoing.read()
        channel.incoming.write(mutated(data, pick) if flight == corrupted and data else data)
        failed = _step(channel.tls.do_handshake)
        if failed is not None:
            text = failure_text(failed)
            assert text and len(text) < TEXT_MAX and "\n" not in text
            return
        incoming.write(channel.outgoing.read())
    if channel.tls.version() is not None:
        assert server.principal(channel.tls.getpeercert(binary_form=True)) == "User:client"


def _step(handshake: Callable[[], None]) -> Exception | None:
    try:
        handshake()
    except ssl.SSLWantReadError:
        pass
    except (ssl.SSLError, ssl.CertificateError) as error:
        return error
    return None


def _certificate(pick: Pick) -> None:
    """The name in a certificate that OpenSSL would have to accept: any bytes of it."""
    server, _, certificate = ends()
    try:
        principal = server.principal(mutated(certificate, pick))
    except ValueError:
        return
    assert principal is None or principal.startswith("User:")
