"""TLS of one listener of a broker: its context, replaced as a whole, and the principals of clients by their certificates."""

from __future__ import annotations

import ssl

from txbroker.tls.certificates import read_certificate
from txbroker.tls.contexts import ServerTls, server_context
from txbroker.tls.principal_rules import InvalidRule, PrincipalRules
from txbroker.tls.settings import TlsProblem, TlsSettings

RULES_KEY = "ssl.principal.mapping.rules"


class ListenerTls:
    """Connections keep the context that they began with. `loaded`: what new ones use."""

    def __init__(self, settings: TlsSettings, rules: str, *, names_clients: bool) -> None:
        """`names_clients`: a client's certificate is its principal, not its login. TlsProblem."""
        self.settings = settings
        self.loaded: ServerTls = server_context(settings)
        self._rules = parse_rules(rules) if names_clients else None

    @property
    def context(self) -> ssl.SSLContext:
        """That of new connections."""
        return self.loaded.context

    def replace(self, settings: TlsSettings, loaded: ServerTls) -> None:
        """Use another context for new connections."""
        self.settings = settings
        self.loaded = loaded

    def principal(self, certificate: bytes | None) -> str | None:
        """Kafka's "Type:name"; None for a client without a certificate, or one that logs in. ValueError if no rule matches."""
        if certificate is None or self._rules is None:
            return None
        return f"User:{self._rules.name(read_certificate(certificate).subject)}"


def parse_rules(text: str) -> PrincipalRules:
    """The rules for principals; TlsProblem."""
    try:
        return PrincipalRules(text)
    except InvalidRule as error:
        raise TlsProblem(RULES_KEY, f"is not valid: {error}") from None
