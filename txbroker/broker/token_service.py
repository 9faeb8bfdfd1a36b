"""The delegation tokens of a broker: their store, their requests, and the end of those that expire."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.api.registry import Api, Handler, Registry
from txbroker.broker.environment import Environment
from txbroker.broker.identity import is_clustered
from txbroker.clock import DelayedCall
from txbroker.cluster.tree.interface import Tree
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError
from txbroker.wire.schema import parse_versions

if TYPE_CHECKING:  # imported when there is a secret key, or for a request
    from txbroker.security.delegation_tokens import DelegationTokens
    from txbroker.security.scram import FindToken
    from txbroker.security.token_store import TokenStore

APIS = (
    Api(38, "CreateDelegationToken", parse_versions("0-3")),
    Api(39, "RenewDelegationToken", parse_versions("0-2")),
    Api(40, "ExpireDelegationToken", parse_versions("0-2")),
    Api(41, "DescribeDelegationToken", parse_versions("0-3")),
)

log = logging.getLogger("txbroker.security")


class TokenService:
    """Without delegation.token.secret.key there are no tokens, and requests for them are answered with an error."""

    def __init__(self, environment: Environment, config: BrokerConfig, tree: Tree) -> None:
        self._environment = environment
        self._config = config
        self._tree = tree
        self._clock = environment.reactor
        self._check_s = config.int("delegation.token.expiry.check.interval.ms") / 1000
        self._is_controller: Callable[[], bool] = lambda: False
        self._timer: DelayedCall | None = None
        self._is_removing = False
        secret = config.optional_text("delegation.token.secret.key") or config.optional_text("delegation.token.master.key")
        self._secret = secret.encode() if secret else None

    @cached_property
    def _store(self) -> TokenStore:
        from txbroker.security.token_store import TokenStore

        return TokenStore(self._tree, self._clock, self._environment.random.random, is_shared=is_clustered(self._config))

    @cached_property
    def _tokens(self) -> DelegationTokens:
        from txbroker.security.delegation_tokens import DelegationTokens, Lifetimes

        config, environment = self._config, self._environment
        lifetimes = Lifetimes(config.int("delegation.token.max.lifetime.ms"), config.int("delegation.token.expiry.time.ms"))
        return DelegationTokens(
            self._store, self._secret, lifetimes, environment.now_ms, environment.random_bytes, environment.in_worker
        )

    @property
    def find(self) -> FindToken | None:
        """Finds the tokens of logins."""
        return None if self._secret is None else self._tokens.login

    async def start(self) -> None:
        """Read the tokens; TreeError."""
        if self._secret is not None:
            await self._store.start()
            self._check_later()

    def serve(self, registry: Registry, is_controller: Callable[[], bool]) -> None:
        """Serve requests for tokens. The controller removes tokens that have expired."""
        self._is_controller = is_controller
        registry.register_later(APIS, self._handlers)

    def renew(self) -> None:
        """The next session of the tree has begun."""
        if self._secret is not None:
            self._store.renew()

    def stop(self) -> None:
        """Read tokens no more."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self._secret is not None:
            self._store.stop()

    def _handlers(self) -> Iterable[Handler]:
        from txbroker.api import delegation_tokens

        return (
            delegation_tokens.CreateDelegationTokenHandler(self._tokens),
            delegation_tokens.RenewDelegationTokenHandler(self._tokens),
            delegation_tokens.ExpireDelegationTokenHandler(self._tokens),
            delegation_tokens.DescribeDelegationTokenHandler(self._tokens),
        )

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
