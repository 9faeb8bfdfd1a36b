"""What both sides of SCRAM compute (RFC 5802), for Kafka's mechanisms."""

from __future__ import annotations

import hashlib
import hmac

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4096  # Kafka's, for both mechanisms


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    """With which a client proves that it knows the password."""
    return hmac.digest(salted, b"Client Key", hash_name)


def stored_key(hash_name: str, key: bytes) -> bytes:
    """What a server keeps of the client key."""
    return hashlib.new(hash_name, key).digest()


def server_key(hash_name: str, salted: bytes) -> bytes:
    """With which a server proves that it knows the password."""
    return hmac.digest(salted, b"Server Key", hash_name)


def signature(hash_name: str, key: bytes, messages: bytes) -> bytes:
    """Of all messages, with one of these keys."""
    return hmac.digest(key, messages, hash_name)


def exclusive_or(one: bytes, other: bytes) -> bytes:
    """Of two texts of the same length: a client's proof is its key and the signature with the stored key."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
