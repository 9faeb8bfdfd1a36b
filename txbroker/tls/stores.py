"""Certificates and keys of a store, whatever its type.

As in Java, the types JKS and PKCS12 read files of both kinds: the first bytes decide. PKCS12 needs the package cryptography.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from txbroker.tls import files, java_key_store, pem
from txbroker.tls.certificates import Certificate, read_certificate
from txbroker.tls.der import Malformed
from txbroker.tls.java_key_store import WrongPassword
from txbroker.tls.settings import PEM, StoreSettings, TlsProblem

T = TypeVar("T")
_INSTALL = "install txbroker[security], or convert it to PEM with `openssl pkcs12 -in {} -out store.pem -nodes`"


class KeyMaterial(NamedTuple):
    """`chain`: certificates in DER, that of the key first. `text`: all in PEM; `password` is that of the key."""

    chain: tuple[bytes, ...]
    text: str
    password: str | None


def key_material(store: StoreSettings, key_password: str | None) -> KeyMaterial:
    """The key of a key store with its certificates; TlsProblem."""
    return _used(store, lambda: _key_material(store, key_password))


def trusted_certificates(store: StoreSettings) -> tuple[bytes, ...]:
    """The certificates of a trust store in DER; TlsProblem."""
    return _used(store, lambda: _trusted(store))


def certificate(store: StoreSettings, data: bytes) -> Certificate:
    """What a certificate of a store says; TlsProblem."""
    return _used(store, lambda: read_certificate(data))


def _used(store: StoreSettings, use: Callable[[], T]) -> T:
    where = store.location or "the value"
    try:
        return use()
    except WrongPassword as error:
        key = f"ssl.{store.name}.password" if store.password else "ssl.key.password"
        raise TlsProblem(key, f"does not open {where}: {error}") from None
    except OSError as error:
        raise TlsProblem(store.source_key, f"is {where}, which cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, TlsProblem):
            raise
        advice = f"a store of the type {store.kind} is needed, see ssl.{store.name}.type"
        place = f"is {where}, which cannot be used" if store.location else "cannot be used"
        raise TlsProblem(store.source_key, f"{place}: {error}; {advice}") from None


def _key_material(store: StoreSettings, key_password: str | None) -> KeyMaterial:
    data = _data(store)
    if store.kind == PEM:
        return _pem_key(data, key_password)
    if data.startswith(java_key_store.MAGIC):
        return _java_key(data, store, key_password)
    return _pkcs12_key(data, store)


def _trusted(store: StoreSettings) -> tuple[bytes, ...]:
    data = _data(store)
    if store.kind == PEM:
        found = tuple(block.content for block in pem.blocks(_text(data)) if block.label in pem.CERTIFICATES)
    elif data.startswith(java_key_store.MAGIC):
        entries = java_key_store.read_java_key_store(data, store.password)
        found = (*entries.certificates.values(), *(entry.chain[0] for entry in entries.keys.values() if entry.chain))
    else:
        opened = _pkcs12(data, store)
        own = [] if opened.cert is None else [opened.cert]
        found = tuple(_der(each.certificate) for each in (*own, *opened.additional_certs))
    if not found:
        raise Malformed("it has no certificates")
    for each in found:
        read_certificate(each)
    return found


def _data(store: StoreSettings) -> bytes:
    return files.read(store.location) if store.location is not None else (store.inline or "").encode()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _pem_key(data: bytes, key_password: str | None) -> KeyMaterial:
    blocks = list(pem.blocks(_text(data)))
    keys = [block for block in blocks if block.is_key]
    chain = [block.content for block in blocks if block.label in pem.CERTIFICATES]
    if not keys or not chain:
        raise Malformed("it has no private key" if not keys else "it has no certificate")
    if len(keys) > 1:
        raise Malformed("it has several private keys")
    return _material(keys[0].text(), chain, key_password)


def _java_key(data: bytes, store: StoreSettings, key_password: str | None) -> KeyMaterial:
    entries = java_key_store.read_java_key_store(data, store.password)
    entry = next(iter(entries.keys.values()), None)
    if entry is None or not entry.chain:
        raise Malformed("it has no private key")
    key = java_key_store.private_key(entry, key_password or store.password or "")
    return _material(pem.Block("PRIVATE KEY", (), key).text(), list(entry.chain), None)


def _pkcs12_key(data: bytes, store: StoreSettings) -> KeyMaterial:
    opened = _pkcs12(data, store)
    if opened.key is None or opened.cert is None:
        raise Malformed("it has no private key with its certificate")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    chain = [_der(opened.cert.certificate), *(_der(each.certificate) for each in opened.additional_certs)]
    return _material(key, chain, None)


def _material(key: str, chain: list[bytes], password: str | None) -> KeyMaterial:
    ordered = _ordered(chain)
    text = "".join((key, *(pem.Block("CERTIFICATE", (), each).text() for each in ordered)))
    return KeyMaterial(ordered, text, password)


def _ordered(chain: list[bytes]) -> tuple[bytes, ...]:
    """The first certificate, then its issuer, and so on; certificates that are not among the issuers are not sent."""
    read = {data: read_certificate(data) for data in chain}
    ordered = [chain[0]]
    while True:
        issuer = read[ordered[-1]].issuer
        following = next((each for each in chain if each not in ordered and read[each].name == issuer), None)
        if following is None:
            return tuple(ordered)
        ordered.append(following)


def _pkcs12(data: bytes, store: StoreSettings) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise TlsProblem(store.location_key, f"is {store.location}, a PKCS12 store; {_INSTALL.format(store.location)}") from None
    try:
        return pkcs12.load_pkcs12(data, (store.password or "").encode())
    except ValueError as error:
        if "password" in str(error).lower():
            raise WrongPassword("the password is wrong, or the store is damaged") from None
        raise Malformed("it is neither JKS nor PKCS12") from None


def _der(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    data: bytes = certificate.public_bytes(Encoding.DER)
    return data
