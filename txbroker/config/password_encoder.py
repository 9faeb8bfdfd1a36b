"""Passwords in dynamic configurations, encrypted in the form of Kafka's brokers with ZooKeeper (KIP-226, EncryptingPasswordEncoder).

The text is a list of name:value: the key derivation (PBKDF2 of `password.encoder.secret`), the cipher, salt and initialization vector, the
encrypted password, and its length, by which a wrong secret is recognised. AES is that of the package cryptography (extra `security`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
CIPHERS = (CBC, GCM)
FACTORIES = {f"PBKDF2WithHmacSHA{size}": f"sha{size}" for size in (1, 224, 256, 384, 512)}
DEFAULT_FACTORY = "PBKDF2WithHmacSHA512"
KEY_BITS = (128, 192, 256)
SALT_BYTES, IV_BYTES, GCM_IV_BYTES, GCM_TAG_BYTES = 256, 16, 12, 16
ITERATIONS_MAX = 10_000_000  # the text is read from the metadata
_INSTALL = "passwords of dynamic configurations need the package cryptography: pip install 'txbroker[security]', and start the broker again"

RandomBytes = Callable[[int], bytes]


class NotDecoded(ValueError):
    """A stored password cannot be read; the message has no part of it."""


class Unavailable(RuntimeError):
    """The package cryptography is missing; the message says what to do."""


class EncoderSettings(NamedTuple):
    """The keys password.encoder.*: `old_secret` only for reading."""

    secret: str
    old_secret: str | None = None
    factory: str | None = None
    cipher: str = CBC
    key_bits: int = 128
    iterations: int = 4096


def encoder_settings(value: Callable[[str], Any]) -> EncoderSettings | None:
    """`value` returns that of a key; None without a secret."""
    if not value("password.encoder.secret"):
        return None
    return EncoderSettings(
        value("password.encoder.secret"),
        value("password.encoder.old.secret"),
        value("password.encoder.keyfactory.algorithm"),
        value("password.encoder.cipher.algorithm"),
        value("password.encoder.key.length"),
        value("password.encoder.iterations"),
    )


class PasswordEncoder:
    """Encrypts and decrypts. What was decrypted is remembered, as deriving a key takes milliseconds."""

    def __init__(self, settings: EncoderSettings) -> None:
        self._settings = settings
        self._known: Mapping[str, str] = {}

    def encode(self, password: str, random_bytes: RandomBytes) -> str:
        """The text to store; Unavailable."""
        settings = self._settings
        factory = settings.factory or DEFAULT_FACTORY
        salt, vector = random_bytes(SALT_BYTES), random_bytes(IV_BYTES if settings.cipher == CBC else GCM_IV_BYTES)
        key = hashlib.pbkdf2_hmac(FACTORIES[factory], settings.secret.encode(), salt, settings.iterations, settings.key_bits // 8)
        fields = {
            "initializationVector": _base64(vector),
            "keyLength": str(settings.key_bits),
            "salt": _base64(salt),
            "keyFactoryAlgorithm": factory,
            "cipherAlgorithm": settings.cipher,
            "iterations": str(settings.iterations),
            "passwordLength": str(_java_length(password)),
            "encryptedPassword": _base64(_encrypt(settings.cipher, key, vector, password.encode())),
        }
        if settings.cipher == GCM:
            fields["authenticationTagLength"] = str(8 * GCM_TAG_BYTES)
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """The password, by the present secret or the old one; NotDecoded, Unavailable."""
        if text not in self._known:
            try:
                password = _decode(text, self._settings.secret)
            except NotDecoded:
                if self._settings.old_secret is None:
                    raise
                password = _decode(text, self._settings.old_secret)
            self._known = {**dict(list(self._known.items())[-100:]), text: password}
        return self._known[text]

    def encoded_again(self, text: str, random_bytes: RandomBytes) -> str:
        """The same password by the present secret, if it is encrypted by the old one; otherwise the text as it is. Unavailable."""
        if self._settings.old_secret is None:
            return text
        try:
            _decode(text, self._settings.secret)
        except NotDecoded:
            try:
                return self.encode(_decode(text, self._settings.old_secret), random_bytes)
            except NotDecoded:
                pass
        return text


def _decode(text: str, secret: str) -> str:
    fields = dict(part.partition(":")[::2] for part in text.split(","))
    try:
        factory, cipher = FACTORIES[fields["keyFactoryAlgorithm"]], fields["cipherAlgorithm"]
        bits, iterations, length = (int(fields[name]) for name in ("keyLength", "iterations", "passwordLength"))
        salt, vector, encrypted = (base64.b64decode(fields[name], validate=True)
                                   for name in ("salt", "initializationVector", "encryptedPassword"))  # fmt: skip
    except (KeyError, ValueError, binascii.Error):
        raise NotDecoded("it is not in the form of an encrypted password") from None
    if cipher not in CIPHERS or bits not in KEY_BITS or not 1 <= iterations <= ITERATIONS_MAX or not salt:
        raise NotDecoded("its cipher, the length of its key or its iterations are not supported")
    key = hashlib.pbkdf2_hmac(factory, secret.encode(), salt, iterations, bits // 8)
    try:
        password = _decrypt(cipher, key, vector, encrypted).decode()
    except ValueError:
        password = None
    if password is None or _java_length(password) != length:
        raise NotDecoded("it is not encrypted by password.encoder.secret")
    return password


def _primitives() -> Any:
    try:
        from cryptography.hazmat.primitives import ciphers
        from cryptography.hazmat.primitives.ciphers import aead
    except ImportError:
        raise Unavailable(_INSTALL) from None
    return ciphers, aead


def _encrypt(cipher: str, key: bytes, vector: bytes, content: bytes) -> bytes:
    ciphers, aead = _primitives()
    if cipher == GCM:
        sealed: bytes = aead.AESGCM(key).encrypt(vector, content, None)
        return sealed
    padding = IV_BYTES - len(content) % IV_BYTES
    encryptor = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CBC(vector)).encryptor()
    encrypted: bytes = encryptor.update(content + bytes([padding]) * padding) + encryptor.finalize()
    return encrypted


def _decrypt(cipher: str, key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    """ValueError."""
    ciphers, aead = _primitives()
    if cipher == GCM:
        from cryptography.exceptions import InvalidTag

        try:
            opened: bytes = aead.AESGCM(key).decrypt(vector, encrypted, None)
        except InvalidTag:
            raise ValueError from None
        return opened
    decryptor = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CBC(vector)).decryptor()
    content: bytes = decryptor.update(encrypted) + decryptor.finalize()
    padding = content[-1] if content else 0
    if not 1 <= padding <= IV_BYTES or content[-padding:] != bytes([padding]) * padding:
        raise ValueError
    return content[:-padding]


def _java_length(text: str) -> int:
    """String.length(): in units of UTF-16."""
    return len(text.encode("utf-16-be", "surrogatepass")) // 2


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
