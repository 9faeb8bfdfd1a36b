"""TLS of one listener of a broker: its contexts, replaced as a whole, and the principals of clients by their certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from txbroker.tls import files
from txbroker.tls.certificates import Certificate, read_certificate
from txbroker.tls.contexts import ServerTls, can_connect, client_context, server_context
from txbroker.tls.principal_rules import InvalidRule, PrincipalRules
from txbroker.tls.settings import RULES_KEY, Allowed, TlsProblem, TlsSettings
from txbroker.tls.validity import shown_time

Stamps = tuple[tuple[int, int, int] | None, ...]


class Loaded(NamedTuple):
    """What connections use, and what it was made of. `client`: for connections to other brokers; None if the listener is not for them.

    `checking` is a client that does not check the host.
    """

    settings: TlsSettings
    stamps: Stamps
    server: ServerTls
    client: ssl.SSLContext | None = None
    checking: ssl.SSLContext | None = None


class NotYetValid(TlsProblem):
    """A certificate that begins later, in ms since 1970."""

    begins_ms = 0


class ListenerTls:
    """Connections keep the context that they began with. `loaded`: what new ones use. `is_for_brokers`: brokers connect to it."""

    def __init__(self, settings: TlsSettings, rules: str, *, names_clients: bool, is_for_brokers: bool = False) -> None:
        """`names_clients`: a client's certificate is its principal, not its login. TlsProblem."""
        self.refused: Callable[[Any, str], None] = lambda session, reason: None
        """Called with the session and the reason of each handshake that fails."""
        self._is_for_brokers = is_for_brokers
        self._rules = parse_rules(rules) if names_clients else None
        self.loaded = self._load(settings)
        self._tried = settings, self.loaded.stamps
        self._again_ms: int | None = None  # when the certificate that was tried begins

    @property
    def context(self) -> ssl.SSLContext:
        """That of new connections."""
        return self.loaded.server.context

    def client_context(self) -> ssl.SSLContext:
        """That of new connections to other brokers."""
        assert self.loaded.client is not None, "brokers do not connect to this listener"
        return self.loaded.client

    def prepared(self, settings: TlsSettings, allowed: Allowed, now_ms: int, *, always: bool) -> Loaded | None:
        """Load keys and certificates again, for `use`; may run in a worker. TlsProblem as `check`.

        None if neither the settings nor the files have changed since the last time, unless `always`, or a certificate is valid now that
        was not yet.
        """
        stamped = settings, _stamps(settings)
        begins_now = self._again_ms is not None and now_ms >= self._again_ms
        if not always and stamped == self._tried and not begins_now:
            return None
        self._tried, self._again_ms = stamped, None
        try:
            return self.check(settings, allowed, now_ms)
        except NotYetValid as problem:
            self._again_ms = problem.begins_ms
            raise

    def check(self, settings: TlsSettings, allowed: Allowed, now_ms: int) -> Loaded:
        """Load keys and certificates; TlsProblem if they cannot replace the present ones."""
        loaded = self._load(settings)
        _check_dates(loaded, self.loaded.server.sent, now_ms)
        self._compare(loaded, allowed)
        return loaded

    def use(self, loaded: Loaded) -> None:
        """Use this for new connections."""
        self.loaded = loaded

    def principal(self, certificate: bytes | None) -> str | None:
        """Kafka's "Type:name"; None for a client without a certificate, or one that logs in. ValueError if no rule matches."""
        if certificate is None or self._rules is None:
            return None
        return f"User:{self._rules.name(read_certificate(certificate).subject)}"

    def _load(self, settings: TlsSettings) -> Loaded:
        stamps = _stamps(settings)  # before the files are read: a change meanwhile is another one
        server = server_context(settings)
        if not self._is_for_brokers:
            return Loaded(settings, stamps, server)
        checking = client_context(settings._replace(verifies_host=False))
        _check_pair(server.context, checking, settings, "brokers could not connect to each other")
        return Loaded(settings, stamps, server, client_context(settings), checking)

    def _compare(self, new: Loaded, allowed: Allowed) -> None:
        """SslFactory.createNewSslEngineFactory: connections of brokers that have the old certificate go on, and clients know the name."""
        old, settings = self.loaded, new.settings
        before, after = old.server.own, new.server.own
        if before.subject != after.subject and not allowed.other_name:
            raise _unlike(settings, f"the name {after.subject} instead of {before.subject}", "ssl.allow.dn.changes")
        if not before.alternative_names <= after.alternative_names and not allowed.fewer_hosts:
            raise _unlike(settings, "fewer names of hosts than before", "ssl.allow.san.changes")
        if old.checking is not None and new.checking is not None:
            why = "brokers with the present certificate and with this one could not connect to each other"
            _check_pair(old.server.context, new.checking, settings, why)
            _check_pair(new.server.context, old.checking, settings, why)


def parse_rules(text: str) -> PrincipalRules:
    """The rules for principals; TlsProblem."""
    try:
        return PrincipalRules(text)
    except InvalidRule as error:
        raise TlsProblem(RULES_KEY, f"is not valid: {error}") from None


def _check_dates(new: Loaded, present: tuple[Certificate, ...], now_ms: int) -> None:
    """No client would accept the certificate, or one of those between it and the root. A root is the client's own.

    `present`: those that are used already stay with another trust store, also if they have ended.
    """
    store, sent = new.settings.keystore, new.server.sent
    assert store is not None
    for each in sent:
        if each in present or (each is not sent[0] and each.name == each.issuer):
            continue
        where = f"is {store.location or 'a value'}, whose certificate {each.subject}"
        # A root that another root has signed, too, is no use once that signature has ended; which roots clients have is not known here.
        remedy = "use one that is valid now" + ("" if each is sent[0] else ", or leave it out if clients trust this name themselves")
        if now_ms > each.not_after_ms:
            raise TlsProblem(store.source_key, f"{where} has ended at {shown_time(each.not_after_ms)}; {remedy}")
        if now_ms < each.not_before_ms:
            problem = NotYetValid(store.source_key, f"{where} is not valid before {shown_time(each.not_before_ms)}; {remedy}")
            problem.begins_ms = each.not_before_ms
            raise problem


def _stamps(settings: TlsSettings) -> Stamps:
    stores = settings.keystore, settings.truststore
    return tuple(None if store is None or store.location is None else files.stamp(store.location) for store in stores)


def _check_pair(server: ssl.SSLContext, client: ssl.SSLContext, settings: TlsSettings, consequence: str) -> None:
    why = can_connect(server, client)
    if why is not None:
        key = "ssl.truststore.location" if settings.truststore is None else settings.truststore.source_key
        where = "not set" if settings.truststore is None else settings.truststore.location or "a value"
        raise TlsProblem(key, f"is {where}, which does not fit the certificate in the key store: {why}; {consequence}")


def _unlike(settings: TlsSettings, difference: str, key: str) -> TlsProblem:
    store = settings.keystore
    assert store is not None
    where = store.location or "a value"
    remedy = f"restart the broker, with {key}=true if that may happen again"  # the key cannot be changed while the broker runs
    return TlsProblem(store.source_key, f"is {where}, whose certificate has {difference}; {remedy}")
