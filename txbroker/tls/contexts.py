"""Contexts of Python's ssl module, for listeners and for clients: TLS 1.2 or newer, without renegotiation."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from txbroker.tls import files
from txbroker.tls.certificates import Certificate
from txbroker.tls.pem import Block
from txbroker.tls.settings import TlsProblem, TlsSettings
from txbroker.tls.stores import KeyMaterial, certificate, key_material, trusted_certificates

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_FLIGHTS = 4  # of a handshake, with one to spare
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ServerTls(NamedTuple):
    """The context of a listener, and the certificates in it: its own one is the first of `sent`, and `trusted` are those for clients."""

    context: ssl.SSLContext
    sent: tuple[Certificate, ...]
    trusted: tuple[Certificate, ...]

    @property
    def own(self) -> Certificate:
        """The certificate of the listener."""
        return self.sent[0]


def server_context(settings: TlsSettings) -> ServerTls:
    """The context of a listener; TlsProblem."""
    if settings.keystore is None:
        raise TlsProblem("ssl.keystore.location", "must be set, or ssl.keystore.key and ssl.keystore.certificate.chain: a listener with "
                         "TLS needs a certificate and its key")  # fmt: skip
    if settings.client_auth != "none" and settings.truststore is None:
        raise TlsProblem("ssl.client.auth", f"is {settings.client_auth}, so ssl.truststore.location must be set: with the certificates of "
                         "the system every public certificate would be accepted")  # fmt: skip
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    material = _load_key(context, settings)
    sent = tuple(certificate(settings.keystore, each) for each in material.chain)
    store = settings.truststore
    trusted = () if store is None else tuple(certificate(store, each) for each in _load_trusted(context, settings))
    context.verify_mode = _VERIFY[settings.client_auth]
    if settings.client_auth != "none":
        context.num_tickets = 0  # a session that is resumed is not verified again
        context.options |= ssl.OP_NO_TICKET
    return ServerTls(context, sent, trusted)


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a client; TlsProblem. Without a trust store the certificates of the system are trusted."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.verifies_host
    if settings.truststore is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_trusted(context, settings)
    if settings.keystore is not None:
        _load_key(context, settings)
    return context


def can_connect(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Why a client cannot connect to a server, by a handshake in memory; None if it can. The client does not check the host."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_FLIGHTS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return getattr(error, "verify_message", None) or error.reason or str(error)
    return None


def _context(side: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    versions = [_VERSIONS[each] for each in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # As in Java, each trusted certificate is trusted for itself, not only one that is signed by itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if settings.suites is not None and settings.suites.tls_1_2:
        try:
            context.set_ciphers(settings.suites.tls_1_2)
        except ssl.SSLError:
            raise TlsProblem("ssl.cipher.suites", "has no suite that OpenSSL has here; name others") from None
    return context


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> KeyMaterial:
    store = settings.keystore
    assert store is not None
    material = key_material(store, settings.key_password)
    try:
        files.load_key(context, material.text, material.password)
    except ssl.SSLError as error:
        where = store.location or "the value"
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsProblem(store.source_key, f"is {where}, whose private key is not that of its first certificate") from None
        password = "the password in ssl.key.password is wrong, or " if "ENCRYPTED" in material.text else ""
        raise TlsProblem(store.source_key, f"is {where}, which cannot be used: {password}{error.reason or error}") from None
    return material


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings) -> tuple[bytes, ...]:
    store = settings.truststore
    assert store is not None
    certificates = trusted_certificates(store)
    try:
        context.load_verify_locations(cadata="".join(Block("CERTIFICATE", (), each).text() for each in certificates))
    except ssl.SSLError as error:
        raise TlsProblem(store.source_key, f"cannot be used: {error.reason or error}") from None
    return certificates
