"""The token with which a client logs in by OAUTHBEARER: from a file, or by its id and secret from an identity provider.

The provider is asked as by Kafka's OAuthBearerLoginCallbackHandler (KIP-768): the grant of client credentials of RFC 6749, section 4.4.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from txbroker.client.client_errors import ConnectionFailed
from txbroker.client.web_document import NoDocument, post_form
from txbroker.config.jaas import InvalidJaas, parse_jaas
from txbroker.config.oauthbearer import TOKEN_KEY, InvalidUrl, file_of, shown_url
from txbroker.tls import files
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import TlsProblem, TlsSettings, read_settings

ANSWER_BYTES_MAX = 1_048_576
TIMEOUT_S = 10.0
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*", re.ASCII)


class TokenSource(NamedTuple):
    """It is sent to other processes. `path`: of a file; else `url`: of a provider, with the client's id and secret."""

    path: str | None = None
    url: str = ""
    client_id: str = ""
    client_secret: str = ""
    scope: str | None = None
    tls: TlsSettings | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> TokenSource:
        """By a client's properties; InvalidUrl, whose message has the key."""
        url = properties.get(TOKEN_KEY, "").strip()
        if not url:
            raise InvalidUrl(f"{TOKEN_KEY} is not set; set it to the URL of the token endpoint of your identity provider, or of a file")
        try:
            path = file_of(url)
        except InvalidUrl as error:
            raise InvalidUrl(f"{TOKEN_KEY} {error}") from None
        if path is not None:
            return cls(path)
        try:
            jaas = properties.get("sasl.jaas.config", "").strip()
            options = parse_jaas(jaas).options if jaas else {}
            tls = read_settings(options.get) if urlsplit(url).scheme == "https" else None
        except (InvalidJaas, TlsProblem) as error:
            raise InvalidUrl(f"sasl.jaas.config {error}") from None
        client_id, secret = options.get("clientId"), options.get("clientSecret")
        if not client_id or not secret:
            raise InvalidUrl(f"sasl.jaas.config has no clientId and clientSecret, which {TOKEN_KEY} needs")
        return cls(None, url, client_id, secret, options.get("scope") or None, tls)

    def __str__(self) -> str:
        return f"the token of {self.path}" if self.path is not None else f"a token of {shown_url(self.url)} for {self.client_id}"

    def token(self) -> str:
        """A token; ConnectionFailed. It waits for the disk; or for the provider, for TIMEOUT_S at most for each step.

        Brokers have files only: the mirror may wait, which serves no other client.
        """
        return self._of_file(self.path) if self.path is not None else self._of_provider()

    def _of_file(self, path: str) -> str:
        try:
            token = files.read(path).decode("ascii").strip()
        except (OSError, ValueError) as error:
            raise ConnectionFailed(f"the token of OAUTHBEARER cannot be read: {error}") from None
        if not _TOKEN.fullmatch(token):
            raise ConnectionFailed(f"{path} has no token of OAUTHBEARER; another program must write it there")
        return token

    def _of_provider(self) -> str:
        form = {"grant_type": "client_credentials", **({} if self.scope is None else {"scope": self.scope})}
        user = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        where = f"{shown_url(self.url)} gives client {self.client_id} no token"
        try:
            context = None if self.tls is None else client_context(self.tls)
            answer = post_form(self.url, urlencode(form), f"Basic {user}", ANSWER_BYTES_MAX, TIMEOUT_S, context)
            token = json.loads(answer)["access_token"]
        except TlsProblem as problem:
            raise ConnectionFailed(f"the option {problem.key} of sasl.jaas.config {problem.problem}") from None
        except NoDocument as error:
            raise ConnectionFailed(f"{where}: {error}; check clientId, clientSecret and {TOKEN_KEY}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConnectionFailed(f"{where}: its answer has no access_token; check {TOKEN_KEY}") from None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ConnectionFailed(f"{where}: the access_token in its answer is malformed")
        return token
