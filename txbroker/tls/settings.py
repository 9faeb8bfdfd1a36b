"""Kafka's `ssl.` keys of a listener or of a client, read without the files that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from txbroker.tls.cipher_suites import CipherSuites, cipher_suites

PEM = "PEM"
KINDS = ("JKS", "PKCS12", PEM)
PROTOCOLS = ("TLSv1.2", "TLSv1.3")
CLIENT_AUTH = ("none", "requested", "required")
RULES_KEY = "ssl.principal.mapping.rules"
IDENTIFICATION_KEY = "ssl.endpoint.identification.algorithm"
_OTHER_CODE = ("ssl.engine.factory.class",)


class TlsProblem(ValueError):
    """A key, or the file that it names, cannot be used. `key` is without the prefix of a listener."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key} {problem}")
        self.key = key
        self.problem = problem


class StoreSettings(NamedTuple):
    """A key store or a trust store: a file, or certificates (and a key) as the values of keys. `name`: keystore or truststore."""

    name: str
    kind: str
    location: str | None
    password: str | None
    inline: str | None  # certificates in PEM, for a key store with the key

    @property
    def location_key(self) -> str:
        """The key that names the file."""
        return f"ssl.{self.name}.location"

    @property
    def source_key(self) -> str:
        """The key that the certificates come from."""
        if self.inline is None:
            return self.location_key
        return "ssl.keystore.certificate.chain" if self.name == "keystore" else "ssl.truststore.certificates"


class Allowed(NamedTuple):
    """ssl.allow.dn.changes and ssl.allow.san.changes."""

    other_name: bool = False
    fewer_hosts: bool = False


class TlsSettings(NamedTuple):
    """The keys of a listener or a client. It can be sent to other processes. Stores are None if they are not set.

    `suites`: None for the defaults. `client_auth` is of listeners, `verifies_host` of clients.
    """

    keystore: StoreSettings | None
    truststore: StoreSettings | None
    key_password: str | None
    protocols: tuple[str, ...] = PROTOCOLS
    suites: CipherSuites | None = None
    client_auth: str = "none"
    verifies_host: bool = True


Get = Callable[[str], str | None]


def read_settings(get: Get) -> TlsSettings:
    """`get` returns the text of a key, None or empty if it is not set. TlsProblem."""
    for key in _OTHER_CODE:
        if get(key):
            raise TlsProblem(key, "names code of Java, which cannot run here; remove the key")
    protocols = tuple(part.strip() for part in (get("ssl.enabled.protocols") or ",".join(PROTOCOLS)).split(",") if part.strip())
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise TlsProblem("ssl.enabled.protocols", f"has {protocol}; supported are {' and '.join(PROTOCOLS)}")
    try:
        suites = cipher_suites([part.strip() for part in (get("ssl.cipher.suites") or "").split(",") if part.strip()])
    except ValueError as error:
        raise TlsProblem("ssl.cipher.suites", str(error)) from None
    if suites is not None:
        protocols = _with_suites(protocols, suites)
    client_auth = (get("ssl.client.auth") or "none").strip().lower()
    if client_auth not in CLIENT_AUTH:
        raise TlsProblem("ssl.client.auth", f"is {client_auth}; it must be one of {', '.join(CLIENT_AUTH)}")
    algorithm = get(IDENTIFICATION_KEY)
    verifies_host = algorithm is None or bool(algorithm.strip())
    if verifies_host and algorithm is not None and algorithm.strip().lower() != "https":
        raise TlsProblem(IDENTIFICATION_KEY, f"is {algorithm}; it must be https, or empty: no host names are checked")
    return TlsSettings(_keystore(get), _truststore(get), get("ssl.key.password") or None, protocols, suites, client_auth, verifies_host)


def _with_suites(protocols: tuple[str, ...], suites: CipherSuites) -> tuple[str, ...]:
    """The protocols that have a suite."""
    left = tuple(each for each in protocols if (suites.tls_1_3 if each == "TLSv1.3" else suites.tls_1_2))
    if not left:
        raise TlsProblem("ssl.cipher.suites", f"has no suite of {' or '.join(protocols)}, which ssl.enabled.protocols requires")
    return left


def _kind(get: Get, key: str) -> str:
    kind = (get(key) or "JKS").strip().upper()
    if kind not in KINDS:
        raise TlsProblem(key, f"is {kind}; it must be one of {', '.join(KINDS)}")
    return kind


def _keystore(get: Get) -> StoreSettings | None:
    """SslFactory and DefaultSslEngineFactory.createKeystore."""
    location, password = get("ssl.keystore.location") or None, get("ssl.keystore.password") or None
    key, chain = get("ssl.keystore.key") or None, get("ssl.keystore.certificate.chain") or None
    kind = _kind(get, "ssl.keystore.type")
    if key is None and chain is None:
        if location is None:
            if password is not None:
                raise TlsProblem("ssl.keystore.password", "is set without ssl.keystore.location; set both, or neither")
            return None
        if kind == PEM and password is not None:
            raise TlsProblem("ssl.keystore.password", "is not used by the type PEM; set only ssl.key.password")
        if kind != PEM and password is None:
            raise TlsProblem("ssl.keystore.password", f"must be set for a key store of the type {kind}")
        return StoreSettings("keystore", kind, location, password, None)
    present = "ssl.keystore.key" if key is not None else "ssl.keystore.certificate.chain"
    if kind != PEM:
        raise TlsProblem(present, f"needs ssl.keystore.type=PEM, which is {kind}")
    if location is not None:
        raise TlsProblem(present, "and ssl.keystore.location are both set; remove one of them")
    if password is not None:
        raise TlsProblem("ssl.keystore.password", "is not used by the type PEM; set only ssl.key.password")
    if key is None or chain is None:
        raise TlsProblem(present, "is set alone; ssl.keystore.key and ssl.keystore.certificate.chain need each other")
    return StoreSettings("keystore", kind, None, None, f"{key}\n{chain}")


def _truststore(get: Get) -> StoreSettings | None:
    """DefaultSslEngineFactory.createTruststore."""
    location, password = get("ssl.truststore.location") or None, get("ssl.truststore.password") or None
    certificates = get("ssl.truststore.certificates") or None
    kind = _kind(get, "ssl.truststore.type")
    if certificates is not None:
        if kind != PEM:
            raise TlsProblem("ssl.truststore.certificates", f"needs ssl.truststore.type=PEM, which is {kind}")
        if location is not None:
            raise TlsProblem("ssl.truststore.certificates", "and ssl.truststore.location are both set; remove one of them")
    if kind == PEM and password is not None:
        raise TlsProblem("ssl.truststore.password", "is not used by the type PEM; remove it")
    if certificates is None and location is None:
        if password is not None:
            raise TlsProblem("ssl.truststore.password", "is set without ssl.truststore.location; set both, or neither")
        return None
    return StoreSettings("truststore", kind, location, password, certificates)
