"""Java's own key stores, of the type JKS (sun.security.provider.JavaKeyStore).

Such a file has entries, and SHA-1 of the password, a constant and all that is before. Keys are encrypted with a stream of SHA-1 of the
password: this protects little, so that newer stores are PKCS12.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from txbroker.tls import der
from txbroker.tls.der import Malformed

MAGIC = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = _SALT_BYTES = 20
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_PROTECTED_KEY = "1.3.6.1.4.1.42.2.17.1.1"


class WrongPassword(ValueError):
    """The password is not that of the store or of the key."""


class KeyEntry(NamedTuple):
    """`protected` is encrypted with the password of the key; `chain` has certificates in DER, that of the key first."""

    protected: bytes
    chain: tuple[bytes, ...]


class JavaKeyStore(NamedTuple):
    """The entries by alias."""

    keys: dict[str, KeyEntry]
    certificates: dict[str, bytes]


def read_java_key_store(data: bytes, password: str | None) -> JavaKeyStore:
    """Read a store; without a password it is not checked. Malformed, WrongPassword."""
    if not data.startswith(MAGIC):
        raise Malformed("it is of the type JCEKS" if data.startswith(_JCEKS_MAGIC) else "it does not begin as such a store")
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        found = hashlib.sha1(_password_bytes(password) + _WHITENER + content).digest()
        if not hmac.compare_digest(found, digest):
            raise WrongPassword("the password is wrong, or the store is damaged")
    reader = _Reader(content, len(MAGIC))
    version, count = reader.number(4), reader.number(4)
    if version not in (1, 2):
        raise Malformed(f"version {version} of such stores is not known")
    store = JavaKeyStore({}, {})
    for _ in range(count):
        tag, alias, _ = reader.number(4), reader.text(), reader.number(8)
        if tag == _KEY_ENTRY:
            protected = reader.take(reader.number(4))
            store.keys[alias] = KeyEntry(protected, tuple(reader.certificate(version) for _ in range(reader.number(4))))
        elif tag == _CERTIFICATE_ENTRY:
            store.certificates[alias] = reader.certificate(version)
        else:
            raise Malformed(f"an entry has the kind {tag}")
    return store


def private_key(entry: KeyEntry, password: str) -> bytes:
    """The key in PKCS #8; WrongPassword, Malformed (sun.security.provider.KeyProtector)."""
    algorithm, protected = der.only(entry.protected, der.SEQUENCE).children()
    if der.oid_text(next(algorithm.children()).content) != _PROTECTED_KEY:
        raise Malformed("a key is encrypted with an unknown algorithm")
    salt, encrypted = protected.content[:_SALT_BYTES], protected.content[_SALT_BYTES:-_DIGEST_BYTES]
    secret = _password_bytes(password)
    stream, block = b"", salt
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    key = bytes(one ^ other for one, other in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), protected.content[-_DIGEST_BYTES:]):
        raise WrongPassword("the password of the key is wrong")
    return key


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be")


class _Reader:
    """Java's DataInput."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise Malformed("the store ends within an entry")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        return self.take(struct.unpack(">H", self.take(2))[0]).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        kind = self.text() if version == 2 else "X.509"
        if kind != "X.509":
            raise Malformed(f"a certificate is of the type {kind}")
        return self.take(self.number(4))
