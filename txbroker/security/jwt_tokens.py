"""Tokens of OAUTHBEARER: signed JSON Web Tokens (RFC 7519), checked as by Kafka's ValidatorAccessTokenValidator with jose4j.

A token must have `exp`, `iat` and a user. `iss` is checked if an issuer is expected. A token with `aud` is refused if no audience is
expected; a token without it, if one is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from txbroker.security.jwks import VerificationKey, header_of, signed_payload
from txbroker.security.sasl_oauthbearer import AcceptedToken, InvalidToken

_SECONDS_MAX = (2**63 - 1) // 1000
_SHOWN_MAX = 100  # of a value in the log


class TokenRules(NamedTuple):
    """What a token must have, and in which claims."""

    issuer: str | None
    audiences: tuple[str, ...]
    skew_s: int
    scope_claim: str
    sub_claim: str


class Keys(Protocol):
    """Finds keys."""

    def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """The key of a token; None if it is not known."""


class TokenValidator:
    """`now_ms`: the wall clock."""

    def __init__(self, keys: Keys, rules: TokenRules, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms

    def __call__(self, token: str) -> AcceptedToken:
        """What a token says; InvalidToken."""
        claims = self._signed_claims(token)
        user = _user(claims, self._rules.sub_claim)
        now_ms = self._now_ms()
        try:
            expires_ms = self._check(claims, now_ms)
        except InvalidToken as error:
            raise InvalidToken(str(error), user) from None
        return AcceptedToken(user, expires_ms - now_ms)

    def _signed_claims(self, token: str) -> dict[str, Any]:
        try:
            header = header_of(token)
        except ValueError:
            raise InvalidToken("the token is malformed") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not isinstance(kid, str | None):
            raise InvalidToken("the token is malformed")
        key = self._keys.find(kid, algorithm)
        if key is None:
            raise InvalidToken(f"no key verifies a token with the algorithm {_shown(algorithm)} and {_key_name(kid)}")
        try:
            claims = json.loads(signed_payload(token, key, algorithm))
        except (ValueError, RecursionError):
            raise InvalidToken(f"the token has no valid signature of {_key_name(kid)}") from None
        if not isinstance(claims, dict):
            raise InvalidToken("the token has no claims")
        return claims

    def _check(self, claims: dict[str, Any], now_ms: int) -> int:
        """When the token ends, in milliseconds since 1970."""
        rules = self._rules
        expires_s, issued_s, begins_s = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
        if expires_s is None or issued_s is None:
            raise InvalidToken(f"the token has no {'exp' if expires_s is None else 'iat'}")
        if now_ms // 1000 - rules.skew_s >= expires_s:
            raise InvalidToken("the token has expired")
        if begins_s is not None and now_ms // 1000 + rules.skew_s < begins_s:
            raise InvalidToken("the token is not valid yet (nbf)")
        if expires_s < issued_s or (begins_s is not None and expires_s < begins_s):
            raise InvalidToken("the token ends before it begins")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise InvalidToken(f"the token is of the issuer {_shown(claims.get('iss'))}, which is not sasl.oauthbearer.expected.issuer")
        self._check_audience(claims.get("aud"))
        _check_scopes(claims.get(rules.scope_claim), rules.scope_claim)
        return expires_s * 1000

    def _check_audience(self, found: object) -> None:
        audiences = [found] if isinstance(found, str) else found
        if audiences is None and not self._rules.audiences:
            return
        if not isinstance(audiences, list) or not any(each in self._rules.audiences for each in audiences if isinstance(each, str)):
            raise InvalidToken(f"the token is for {_shown(found)}, of which sasl.oauthbearer.expected.audience has none")


def _user(claims: dict[str, Any], name: str) -> str:
    user = claims.get(name)
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"the token has no user in its claim {name}")
    return user.strip()


def _seconds(claims: dict[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value <= _SECONDS_MAX:
        raise InvalidToken(f"{name} of the token is not a number of seconds since 1970")
    return int(value)


def _check_scopes(found: object, name: str) -> None:
    """Kafka's ClaimValidationUtils.validateScopes: not empty, and none twice."""
    scopes = found if isinstance(found, list) else [found] if isinstance(found, str) else []
    names = [scope.strip() if isinstance(scope, str) else "" for scope in scopes]
    if not all(names) or len(set(names)) != len(names):
        raise InvalidToken(f"the token has an empty or repeated scope in its claim {name}")


def _key_name(kid: str | None) -> str:
    return "no kid" if kid is None else f"the kid {_shown(kid)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
