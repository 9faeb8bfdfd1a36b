"""Which tokens and keys are accepted, and what their refusal says."""

from __future__ import annotations

import base64
import json
import time
from itertools import count
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from tests.support.oauth import SigningKey, hand_made, jwks
from txbroker.security import jwks as module
from txbroker.security.jwks import InvalidJwks, VerificationKey, parse_jwks, select
from txbroker.security.jwt_tokens import TokenRules, TokenValidator
from txbroker.security.sasl_oauthbearer import AcceptedToken, InvalidToken

RSA = SigningKey("one")
EC = SigningKey("curve", ec.generate_private_key(ec.SECP256R1()))
FOREIGN = SigningKey("one")
SKEW_S = 30
DEFAULTS = TokenRules(None, (), SKEW_S, "scope", "sub")
NOW_MS = int(time.time()) * 1000


class Known:
    def __init__(self, *keys: VerificationKey) -> None:
        self.keys = keys

    def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        return select(self.keys, kid, algorithm)


def validator(rules: TokenRules = DEFAULTS, now_ms: int = NOW_MS) -> TokenValidator:
    return TokenValidator(Known(*parse_jwks(jwks(RSA, EC))), rules, lambda: now_ms)


def refusal(token: str, rules: TokenRules = DEFAULTS) -> str:
    with pytest.raises(InvalidToken) as refused:
        validator(rules)(token)
    assert len(token) < 20 or token[:20] not in str(refused.value)
    return str(refused.value)


NOW_S = NOW_MS // 1000


@pytest.mark.parametrize("key", [RSA, EC])
def test_an_accepted_token(key: SigningKey) -> None:
    assert validator()(key.token("alice", iat=NOW_S, exp=NOW_S + 100)) == AcceptedToken("alice", 100_000)
    assert validator()(key.token("alice", headers={"kid": None})).user == "alice", "any key that fits"


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256"])
def test_other_algorithms_of_the_same_key(algorithm: str) -> None:
    assert validator()(RSA.token("alice", algorithm=algorithm)).user == "alice"


def test_a_token_is_accepted_as_long_as_the_clocks_may_differ() -> None:
    late = RSA.token(iat=NOW_S - 100, exp=NOW_S - SKEW_S + 1)
    assert validator()(late).lifetime_ms == -(SKEW_S - 1) * 1000
    assert refusal(RSA.token(iat=NOW_S - 100, exp=NOW_S - SKEW_S)) == "the token has expired"
    assert validator()(RSA.token(nbf=NOW_S + SKEW_S)).user == "alice"
    assert refusal(RSA.token(nbf=NOW_S + SKEW_S + 1)) == "the token is not valid yet (nbf)"


@pytest.mark.parametrize(("claims", "reason"), [
    ({"exp": None}, "the token has no exp"), ({"iat": None}, "the token has no iat"),
    ({"exp": "1e20"}, "exp of the token is not a number of seconds since 1970"), ({"exp": True}, "exp of the token is not a number"),
    ({"exp": 1e300}, "exp of the token is not a number"), ({"exp": float("inf")}, "exp of the token is not a number"),
    ({"exp": float("nan")}, "exp of the token is not a number"), ({"iat": -1}, "iat of the token is not a number"),
    ({"exp": 10**30}, "exp of the token is not a number"), ({"iat": NOW_S + 9000}, "the token ends before it begins"),
    ({"nbf": NOW_S + 20, "exp": NOW_S + 10}, "the token ends before it begins"),
    ({"sub": None}, "the token has no user in its claim sub"), ({"sub": ""}, "no user"), ({"sub": "  "}, "no user"),
    ({"sub": 7}, "no user"),
    ({"scope": ""}, "an empty or repeated scope in its claim scope"), ({"scope": ["a", "a"]}, "an empty or repeated scope"),
    ({"scope": ["a", 1]}, "an empty or repeated scope"),
    ({"aud": "kafka"}, "the token is for 'kafka', of which sasl.oauthbearer.expected.audience has none"),
    ({"aud": []}, "the token is for []"),
])  # fmt: skip
def test_claims_that_are_refused_by_default(claims: dict[str, Any], reason: str) -> None:
    assert reason in refusal(RSA.token(**claims))


@pytest.mark.parametrize("claims", [
    {"scope": "a b"}, {"scope": ["a", "b"]}, {"scope": 7}, {"iss": "anyone"}, {"sub": " alice "}, {"exp": NOW_S + 5000.5},
])  # fmt: skip
def test_claims_that_are_accepted_by_default(claims: dict[str, Any]) -> None:
    assert validator()(RSA.token(**claims)).user == "alice"


@pytest.mark.parametrize(("claims", "accepted"), [
    ({"iss": "https://idp", "aud": "kafka"}, True), ({"iss": "https://idp", "aud": ["other", "logs"]}, True),
    ({"iss": "https://idp/", "aud": "kafka"}, False), ({"aud": "kafka"}, False), ({"iss": "https://idp"}, False),
    ({"iss": "https://idp", "aud": "kafka "}, False), ({"iss": "https://idp", "aud": ["other", 7]}, False),
    ({"iss": "https://idp", "aud": {"kafka": 1}}, False),
])  # fmt: skip
def test_issuer_and_audience(claims: dict[str, Any], accepted: bool) -> None:
    rules = TokenRules("https://idp", ("kafka", "logs"), SKEW_S, "scp", "name")
    token = RSA.token(name="bob", **claims)
    if accepted:
        assert validator(rules)(token).user == "bob"
    else:
        refusal(token, rules)


@pytest.mark.parametrize(("token", "reason"), [
    (FOREIGN.token(), "the token has no valid signature of the kid 'one'"),
    (SigningKey("two").token(), "no key verifies a token with the algorithm 'RS256' and the kid 'two'"),
    (hand_made({"alg": "none", "kid": "one"}, {"sub": "alice"}), "no key verifies a token with the algorithm 'none'"),
    (hand_made({"alg": "RS256", "kid": "one", "crit": ["exp"]}, {"sub": "alice"}, b"x" * 32), "the token is malformed"),
    (hand_made({"alg": "none"}, {"sub": "alice"}), "no key verifies a token with the algorithm 'none' and no kid"),
    (hand_made({"alg": "NONE", "kid": "one"}, {"sub": "alice"}), "no key verifies"),
    (hand_made({"kid": "one"}, {"sub": "alice"}), "the token is malformed"),
    (hand_made({"alg": ["RS256"], "kid": "one"}, {"sub": "alice"}), "the token is malformed"),
    (hand_made({"alg": "RS256", "kid": 1}, {"sub": "alice"}), "the token is malformed"),
    (RSA.with_public_key_as_secret(), "no key verifies a token with the algorithm 'HS256' and the kid 'one'"),
    (RSA.token(headers={"kid": "curve"}), "no key verifies a token with the algorithm 'RS256' and the kid 'curve'"),
    ("a.b.c", "the token is malformed"), ("a", "the token is malformed"), ("", "the token is malformed"), ("..", "the token is malformed"),
], ids=count())  # fmt: skip
def test_signatures_that_are_refused(token: str, reason: str) -> None:
    assert reason in refusal(token)


def test_a_changed_token_is_refused() -> None:
    header, claims, signature = RSA.token("alice").split(".")
    changed = json.loads(base64.urlsafe_b64decode(claims + "==")) | {"sub": "admin"}
    part = base64.urlsafe_b64encode(json.dumps(changed).encode()).decode().rstrip("=")
    assert refusal(f"{header}.{part}.{signature}") == "the token has no valid signature of the kid 'one'"
    assert "no valid signature" in refusal(f"{header}.{claims}.")


@given(st.text(max_size=60) | st.builds(lambda *parts: ".".join(parts), *[st.text("abcdef-_0=", max_size=40)] * 3))
def test_any_text_is_refused_with_a_reason(token: str) -> None:
    with pytest.raises(InvalidToken):
        validator()(token)


def test_a_payload_that_is_no_object() -> None:
    import jwt

    for payload in (b"[1]", b"x", b"[" * 100_000, b"1" * 5000):
        token = jwt.PyJWS().encode(payload, RSA.private, "RS256", {"kid": "one"})
        with pytest.raises(InvalidToken):
            validator()(token)


@pytest.mark.parametrize("document", [
    b"", b"x", b"[]", b'{"keys": {}}', b'{"key": []}', b"[" * 100_000, b"\xff", b" " * (module.JWKS_BYTES_MAX + 1),
    json.dumps({"keys": [{}] * (module.KEYS_MAX + 1)}).encode(),
])  # fmt: skip
def test_what_is_no_set_of_keys(document: bytes) -> None:
    with pytest.raises(InvalidJwks):
        parse_jwks(document)


@pytest.mark.parametrize("jwk", [
    {}, {"kty": "RSA"}, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
    {"kty": "oct", "k": "c2VjcmV0"}, {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}, RSA.jwk(use="enc"), RSA.jwk(kid=7),
    RSA.jwk(alg="HS256"), RSA.jwk(alg="ES256"), RSA.jwk(alg="none"), RSA.jwk(alg=["RS256"]),
    RSA.jwk(key_ops=["encrypt"]), RSA.jwk(n=7), EC.jwk(crv="secp256k1"),
    SigningKey("short", rsa.generate_private_key(public_exponent=65537, key_size=1024)).jwk(), [], 7,
])  # fmt: skip
def test_keys_that_are_left_out(jwk: object) -> None:
    assert [key.kid for key in parse_jwks(json.dumps({"keys": [jwk, EC.jwk()]}).encode())] == ["curve"]


def test_a_key_with_an_algorithm_verifies_only_with_it() -> None:
    (key,) = parse_jwks(json.dumps({"keys": [RSA.jwk(alg="PS256")]}).encode())
    assert key.algorithms == ("PS256",) and select([key], "one", "RS256") is None
