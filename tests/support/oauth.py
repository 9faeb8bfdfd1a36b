"""An identity provider of tests: it signs tokens, and serves its public keys (JWKS) over HTTP."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
VALID_S = 3600


def allowed(*urls: str) -> str:
    """The option with which Apache Kafka's Java reads these URLs."""
    return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(urls)}"


class SigningKey:
    """A key pair with a name. `private`: RSA with 2048 bits if it is not given."""

    def __init__(self, kid: str, private: Any = None) -> None:
        self.kid = kid
        self.private = private or rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.algorithm = "ES256" if isinstance(self.private, ec.EllipticCurvePrivateKey) else "RS256"

    def jwk(self, **more: Any) -> dict[str, Any]:
        """The public key, as in a JWKS."""
        found = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.private.public_key(), as_dict=True)
        return {key: value for key, value in {**found, "kid": self.kid, "use": "sig", **more}.items() if value is not None}

    def token(self, user: str = "alice", *, algorithm: str | None = None, headers: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """A signed token; a claim that is None is left out."""
        now_s = int(time.time())
        content = {"sub": user, "iat": now_s, "exp": now_s + VALID_S, **claims}
        shown = {"kid": self.kid, **(headers or {})}
        token: str = jwt.encode(
            {claim: value for claim, value in content.items() if value is not None},
            self.private,
            algorithm or self.algorithm,
            {claim: value for claim, value in shown.items() if value is not None},
        )
        return token

    def with_public_key_as_secret(self, user: str = "alice") -> str:
        """A token that takes the public key for a shared secret (HS256)."""
        secret = self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return hand_made({"alg": "HS256", "kid": self.kid}, {"sub": user}, secret)


def hand_made(header: Mapping[str, Any], claims: Mapping[str, Any], secret: bytes | None = None) -> str:
    """A token that no library would make; without a secret it has no signature."""
    now_s = int(time.time())
    signed = f"{_part(header)}.{_part({'iat': now_s, 'exp': now_s + VALID_S, **claims})}"
    if secret is None:
        return f"{signed}."
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(signed.encode(), secret)
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def jwks(*keys: SigningKey) -> bytes:
    """The document with these keys."""
    return json.dumps({"keys": [key.jwk() for key in keys]}).encode()


class JwksServer:
    """Serves `document` at `url`; with `status` other than 200, an error. `served`: how often it was asked.

    `forms`: Authorization and content of each form that was sent to it, which is answered with the document, too.
    """

    def __init__(self, document: bytes) -> None:
        self.document = document
        self.status = 200
        self.served = 0
        self.forms: list[tuple[str | None, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.served += 1
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.document)))
                self.end_headers()
                self.wfile.write(outer.document)

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                outer.forms.append((self.headers["Authorization"], content.decode()))
                self.do_GET()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
