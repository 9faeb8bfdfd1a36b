"""Keys that verify tokens: a JSON Web Key Set (RFC 7517), of which only public keys for signatures are taken.

A key verifies tokens with the algorithms of its type only, so that no token can choose an algorithm for which the key was not made: `none`
and HMAC with a public key as the secret are never accepted. Kafka's jose4j selects keys in the same way (VerificationJwkSelector).
This module needs PyJWT (`pip install 'txbroker[security]'`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

JWKS_BYTES_MAX = 1 << 20
KEYS_MAX = 1000
RSA_BITS_MIN = 2048  # jose4j's minimum
_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",), "Ed25519": ("EdDSA",)}


class InvalidJwks(ValueError):
    """What was read is not a set of keys; the message has no part of it."""


class VerificationKey(NamedTuple):
    """A public key. `algorithms`: of the tokens that it verifies. `kid`: its name, None without one."""

    kid: str | None
    algorithms: tuple[str, ...]
    key: Any


def parse_jwks(data: bytes) -> tuple[VerificationKey, ...]:
    """The usable keys in their order; those of other types are left out, as RFC 7517 requires. InvalidJwks."""
    if len(data) > JWKS_BYTES_MAX:
        raise InvalidJwks(f"it has more than {JWKS_BYTES_MAX} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidJwks("it is not JSON") from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise InvalidJwks("it is not an object with the list `keys`")
    if len(keys) > KEYS_MAX:
        raise InvalidJwks(f"it has more than the {KEYS_MAX:,} keys that are allowed")
    return tuple(key for each in keys if isinstance(each, dict) and (key := _verification_key(each)) is not None)


def select(keys: Iterable[VerificationKey], kid: str | None, algorithm: str) -> VerificationKey | None:
    """The first key for a token with this name of a key, if it has one, and this algorithm."""
    return next((key for key in keys if kid in (None, key.kid) and algorithm in key.algorithms), None)


def signed_payload(token: str, key: VerificationKey, algorithm: str) -> bytes:
    """The payload of a token whose signature is right; ValueError."""
    try:
        found: bytes = jwt.PyJWS().decode_complete(token, key.key, algorithms=[algorithm])["payload"]
    except jwt.PyJWTError as error:
        raise ValueError(str(error)) from None
    return found


def header_of(token: str) -> dict[str, Any]:
    """The header of a token, of which nothing is verified; ValueError."""
    try:
        return dict(jwt.get_unverified_header(token))
    except jwt.PyJWTError:
        raise ValueError("its header cannot be read") from None


def _verification_key(jwk: dict[str, Any]) -> VerificationKey | None:
    kid, named, curve = jwk.get("kid"), jwk.get("alg"), jwk.get("crv")
    operations = jwk.get("key_ops")
    if not isinstance(kid, str | None) or jwk.get("use") not in (None, "sig"):
        return None
    if isinstance(operations, list) and "verify" not in operations:
        return None
    algorithms = _OF_RSA if jwk.get("kty") == "RSA" else _OF_CURVE.get(curve, ()) if isinstance(curve, str) else ()
    if named is not None:
        algorithms = (named,) if named in algorithms else ()
    if not algorithms:
        return None
    public = {name: value for name, value in jwk.items() if name in ("kty", "crv", "x", "y", "n", "e")}
    try:
        key = jwt.PyJWK(public, algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        return None
    return VerificationKey(kid, algorithms, key)
