"""The delegation tokens of a broker: their store, their requests, and the end of those that expire."""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.api.delegation_tokens import (
    CreateDelegationTokenHandler,
    DescribeDelegationTokenHandler,
    ExpireDelegationTokenHandler,
    RenewDelegationTokenHandler,
)
from txbroker.api.registry import Registry
from txbroker.broker.environment import Environment
from txbroker.broker.identity import is_clustered
from txbroker.clock import DelayedCall
from txbroker.cluster.tree.interface import Tree
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError
from txbroker.security.delegation_tokens import DelegationTokens, Lifetimes
from txbroker.security.scram import FindToken
from txbroker.security.token_store import TokenStore

log = logging.getLogger("txbroker.security")


class TokenService:
    """Without delegation.token.secret.key there are no tokens, and requests for them are answered with an error."""

    def __init__(self, environment: Environment, config: BrokerConfig, tree: Tree) -> None:
        self._clock = environment.reactor
        self._check_s = config.int("delegation.token.expiry.check.interval.ms") / 1000
        self._is_controller: Callable[[], bool] = lambda: False
        self._timer: DelayedCall | None = None
        self._is_removing = False
        secret = config.optional_text("delegation.token.secret.key") or config.optional_text("delegation.token.master.key")
        lifetimes = Lifetimes(config.int("delegation.token.max.lifetime.ms"), config.int("delegation.token.expiry.time.ms"))
        self._store = TokenStore(tree, environment.reactor, environment.random.random, is_shared=is_clustered(config))
        self._tokens = DelegationTokens(
            self._store,
            secret.encode() if secret else None,
            lifetimes,
            environment.now_ms,
            environment.random_bytes,
            environment.in_worker,
        )

    @property
    def find(self) -> FindToken | None:
        """Finds the tokens of logins."""
        return self._tokens.login if self._tokens.is_enabled else None

    async def start(self) -> None:
        """Read the tokens; TreeError."""
        if self._tokens.is_enabled:
            await self._store.start()
            self._check_later()

    def serve(self, registry: Registry, is_controller: Callable[[], bool]) -> None:
        """Serve requests for tokens. The controller removes tokens that have expired."""
        self._is_controller = is_controller
        for handler in (
            CreateDelegationTokenHandler(self._tokens),
            RenewDelegationTokenHandler(self._tokens),
            ExpireDelegationTokenHandler(self._tokens),
            DescribeDelegationTokenHandler(self._tokens),
        ):
            registry.register(handler)

    def renew(self) -> None:
        """The next session of the tree has begun."""
        if self._tokens.is_enabled:
            self._store.renew()

    def stop(self) -> None:
        """Read tokens no more."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        self._store.stop()

    def _check_later(self) -> None:
        self._timer = self._clock.callLater(self._check_s, self._check)

    def _check(self) -> None:
        self._check_later()
        if self._is_controller() and not self._is_removing:
            self._is_removing = True
            Deferred.fromCoroutine(self._tokens.remove_expired()).addErrback(_not_removed).addBoth(self._have_removed)

    def _have_removed(self, _: None) -> None:
        self._is_removing = False


def _not_removed(failure: Failure) -> None:
    """The next check tries again."""
    if failure.check(BrokerError):
        log.warning("delegation tokens that have expired could not be removed yet: %s", failure.getErrorMessage())
    else:
        log.error("internal error: expired delegation tokens could not be removed: %s", failure.getTraceback())
