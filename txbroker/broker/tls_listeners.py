"""TLS of the listeners: opened at the start, and loaded again when the configuration or the files change, or on request.

A broker does not start with other stores than the configured ones. Later, what cannot be used changes nothing: the listener keeps its
certificate, and the log has an error for each such attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredLock

from txbroker.broker.stored_keys import stored_keys
from txbroker.clock import Clock, DelayedCall
from txbroker.config.listener_keys import LISTENER_PREFIX, known_key, listener_base, listener_prefix
from txbroker.config.listeners import WITH_TLS, Listener, Listeners
from txbroker.config.resolve import BrokerConfig, ListenerConfig
from txbroker.errors import StartError
from txbroker.tls.settings import IDENTIFICATION_KEY, RULES_KEY, Allowed, TlsProblem, TlsSettings, read_settings
from txbroker.tls.validity import days_left, shown_time

if TYPE_CHECKING:
    from txbroker.tls.certificates import Certificate
    from txbroker.tls.listener_tls import ListenerTls

log = logging.getLogger("txbroker.tls")

CLIENT_AUTH_KEY = "ssl.client.auth"
_ONLY_OF_FILES = (RULES_KEY,)  # keys that the metadata cannot have

UNLESS_STORED = "the broker cannot start, unless its configuration in the metadata has another store: "

# How often the files are compared with those that were loaded.
CHECK_S = 10.0
# A certificate that ends sooner is named in the log, once a day.
WARNED_DAYS = 30
WARNED_AGAIN_S = 86_400.0


class TlsListeners:
    """`by_name`: TLS of each listener that has it. `reloads`: how many attempts to load another certificate there were, by result."""

    def __init__(
        self, config: BrokerConfig, listeners: Listeners, clock: Clock, in_worker: Callable[[Callable[[], Any]], Deferred[Any]],
        now_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        """Opens what can be opened; `open` must be called when the metadata has been read, which may have other stores.

        StartError if these cannot help.
        """
        self._config = config
        self._clock = clock
        self._in_worker = in_worker
        self._now_ms = now_ms
        self._inter_broker = listeners.inter_broker
        self._listeners = {listener.name: listener for listener in listeners.bound if listener.protocol in WITH_TLS}
        self._turn = DeferredLock()
        self._timer: DelayedCall | None = None
        self._warned_s: float | None = None
        self.reloads = {"succeeded": 0, "failed": 0}
        self._unusable: dict[str, str] = {}  # what was logged of the keys of a listener
        self.by_name: dict[str, ListenerTls] = {}
        self.problems: list[str] = []
        """Why some listeners cannot be used, unless the metadata has other stores for them."""
        for listener in self._listeners.values():
            try:
                self.by_name[listener.name] = self._open(listener)
            except TlsProblem as problem:
                error = StartError(self._shown(listener, problem))
                if problem.key in _ONLY_OF_FILES:
                    raise error from None
                self.problems.append(str(error))

    def open(self, broker_id: int) -> None:
        """Open TLS of each listener by what is configured now; StartError with the place, the key, and what to do.

        Nothing is compared with the stores of the configuration file, which may be older than those of the metadata: no connection
        uses them. They are not used instead of those of the metadata either: they may trust other clients.
        """
        for problem in self.problems_now(broker_id):
            raise StartError(problem)

    def problems_now(self, broker_id: int) -> Iterator[str]:
        """Open it; why each listener cannot be used that cannot."""
        for name, listener in self._listeners.items():
            try:
                tls = self.by_name.get(name)
                if tls is None or _settings(self._config, listener) != tls.loaded.settings:
                    self.by_name[name] = self._open(listener)
            except TlsProblem as problem:
                yield self._shown(listener, problem) + stored_keys(self._config, listener_prefix(name), problem, broker_id)

    def client_context(self) -> Callable[[], Any] | None:
        """Returns the context of new connections to other brokers; None if these have no TLS."""
        own = self.by_name.get(self._inter_broker)
        return None if own is None else own.client_context

    def start(self) -> None:
        """Watch the files from now on, if there are any; and apply what the configuration in the tree has."""
        self._config.refuses = self.refuses
        if self._listeners:
            self._warn()
            self.refresh()
            self._timer = self._clock.callLater(CHECK_S, self._check)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def refresh(self, *, always: bool = False) -> Deferred[None]:
        """Load what has changed, or everything with `always`; fires when new connections use it. Failures are logged."""
        return self._turn.run(lambda: Deferred.fromCoroutine(self._refresh(always)))

    def refuses(self, candidate: BrokerConfig, changed: Collection[str]) -> str | None:
        """Why another configuration cannot be used; None if it can. Only listeners are checked of which keys change."""
        for key in changed:
            used = {listener_prefix(name) + listener_base(key) for name in self._listeners}
            if key.startswith(LISTENER_PREFIX) and key not in used and candidate.prefixed(key) is not None:
                return f"{key}: this broker has no listener with TLS of that name"
            if (
                key.startswith(LISTENER_PREFIX)
                and listener_base(key) == IDENTIFICATION_KEY
                and key != listener_prefix(self._inter_broker) + IDENTIFICATION_KEY
                and candidate.prefixed(key) is not None
            ):
                return (
                    f"{key} has no effect: this broker checks host names on the listener between brokers only, {self._inter_broker}; "
                    "clients have the key in their own properties"
                )
        for name, listener in self._listeners.items():
            if any(key.startswith(listener_prefix(name)) for key in changed):
                try:
                    self.by_name[name].check(_settings(candidate, listener), _allowed(candidate, name), self._now_ms())
                except TlsProblem as problem:
                    return f"{_shown_key(candidate, name, problem.key)} {problem.problem}"
        return None

    def certificates(self) -> Iterable[tuple[str, str, Certificate, float]]:
        """All loaded certificates: listener, own or trusted, the certificate, and how many days it is still valid."""
        now_ms = self._now_ms()
        for name, tls in self.by_name.items():
            server = tls.loaded.server
            for kind, certificates in (("own", server.sent), ("trusted", server.trusted)):
                yield from ((name, kind, each, days_left(each, now_ms)) for each in certificates)

    def _open(self, listener: Listener) -> ListenerTls:
        """TlsProblem."""
        from txbroker.tls.listener_tls import ListenerTls

        settings, rules = _settings(self._config, listener), self._config.listener(listener.name).text(RULES_KEY)
        is_for_brokers = listener.name == self._inter_broker
        return ListenerTls(settings, rules, names_clients=listener.protocol == "SSL", is_for_brokers=is_for_brokers)

    def _shown(self, listener: Listener, problem: TlsProblem) -> str:
        key = _shown_key(self._config, listener.name, problem.key)
        place = "" if key in self._config.stored else self._config.static.place([key])
        return f"{place}{key} {problem.problem} (listener {listener.name})"

    def _check(self) -> None:
        self._timer = self._clock.callLater(CHECK_S, self._check)
        self._warn()
        self.refresh()

    async def _refresh(self, always: bool) -> None:
        for name, listener in self._listeners.items():
            try:
                await self._reload(name, listener, always)
            except TlsProblem as problem:
                self.reloads["failed"] += 1
                key = _shown_key(self._config, name, problem.key)
                log.error("listener %s keeps its certificate: %s %s", name, key, problem.problem)
            except Exception:
                log.exception("internal error loading the certificate of listener %s", name)

    async def _reload(self, name: str, listener: Listener, always: bool) -> None:
        tls, allowed = self.by_name[name], _allowed(self._config, name)
        try:
            settings = _settings(self._config, listener)
        except TlsProblem as problem:
            if self._unusable.get(name) == str(problem) and not always:
                return
            self._unusable[name] = str(problem)
            raise
        self._unusable.pop(name, None)
        loaded = await self._in_worker(partial(tls.prepared, settings, allowed, self._now_ms(), always=always))
        if loaded is not None:
            tls.use(loaded)
            self.reloads["succeeded"] += 1
            self._warned_s = None
            own = tls.loaded.server.own
            log.info("listener %s has loaded its certificate again: %s, valid until %s", name, own.subject, _date(own))

    def _warn(self) -> None:
        now_s = self._clock.seconds()
        if self._warned_s is not None and now_s - self._warned_s < WARNED_AGAIN_S:
            return
        self._warned_s = now_s
        now_ms = self._now_ms()
        for name, kind, certificate, days in self.certificates():
            if now_ms < certificate.not_before_ms:
                log.warning("the %s certificate %s of listener %s is not valid before %s: replace it, or correct the clock", kind,
                            certificate.subject, name, shown_time(certificate.not_before_ms))  # fmt: skip
            elif days < WARNED_DAYS:
                what = "has ended" if days < 0 else "ends"
                log.warning("the %s certificate %s of listener %s %s on %s: replace it", kind, certificate.subject, name, what,
                            _date(certificate))  # fmt: skip


def _settings(config: BrokerConfig, listener: Listener) -> TlsSettings:
    """The keys of a listener; TlsProblem, also if one of the metadata cannot be read: others would replace it."""
    values = config.listener(listener.name)
    for name, why in config.unreadable.items():
        base = listener_base(name) or name
        if name.startswith((values.prefix, "ssl.")) and base.startswith("ssl."):
            raise TlsProblem(base, f"cannot be read: {why}")
    settings = read_settings(lambda key: _text(values, key))
    if listener.protocol == "SASL_SSL" and config.prefixed(values.prefix + CLIENT_AUTH_KEY) is None:
        return settings._replace(client_auth="none")  # as Kafka's ChannelBuilders
    return settings


def _allowed(config: BrokerConfig, name: str) -> Allowed:
    values = config.listener(name)
    return Allowed(values.boolean("ssl.allow.dn.changes"), values.boolean("ssl.allow.san.changes"))


def _text(values: ListenerConfig, name: str) -> str | None:
    key = known_key(name)
    return None if key is None else key.format(values.value(name))


def _shown_key(config: BrokerConfig, listener: str, key: str) -> str:
    """The name of a key as it is set for a listener."""
    own = listener_prefix(listener) + key
    return own if config.prefixed(own) is not None or own in config.stored else key


def _date(certificate: Certificate) -> str:
    return datetime.fromtimestamp(certificate.not_after_ms / 1000, UTC).strftime("%Y-%m-%d")
