"""What would prevent a start, as far as it is known without ports, locks and other servers: for `txbroker config --check`.

Each check is the part of the broker that a start makes, so that both refuse the same. No file is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from txbroker.broker.environment import Environment
from txbroker.broker.identity import uses_zookeeper
from txbroker.broker.own_login import own_login
from txbroker.broker.sasl_listeners import SaslListeners
from txbroker.broker.stored_keys import refuse_stored_sasl
from txbroker.broker.tls_listeners import UNLESS_STORED, TlsListeners
from txbroker.broker.users_file import UsersFile
from txbroker.config.listeners import parse_listeners
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError
from txbroker.security.scram_credentials import ScramCredentials


class StartProblems(NamedTuple):
    """Sentences: `errors` prevent a start; `warnings` do, unless the configuration in the metadata has other stores."""

    errors: list[str]
    warnings: list[str]


def start_problems(config: BrokerConfig, environment: Environment, broker_id: int, *, knows_stored: bool) -> StartProblems:
    """`knows_stored`: whether the configuration has the dynamic values of this broker, or there are none."""
    found = StartProblems([], [])
    listeners = parse_listeners(config)

    def attempt(check: Callable[[], Any]) -> None:
        try:
            check()
        except StartError as error:
            found.errors.append(str(error))

    def tls() -> None:
        made = TlsListeners(config, listeners, environment.reactor, environment.in_worker, environment.now_ms)
        if knows_stored:
            found.errors.extend(made.problems_now(broker_id))
        else:
            found.warnings.extend(UNLESS_STORED + problem for problem in made.problems)

    def zookeeper() -> None:
        if uses_zookeeper(config):
            from txbroker.cluster.tree.zookeeper_security import read_security  # a broker alone does not import it

            security = read_security(config)
            security.context()
            security.sasl_options()

    attempt(tls)
    attempt(lambda: SaslListeners(config, environment, listeners.bound))
    attempt(lambda: UsersFile(config, environment, ScramCredentials()).read())
    attempt(zookeeper)
    attempt(lambda: own_login(config))
    if knows_stored:
        attempt(lambda: refuse_stored_sasl(config, listeners, broker_id))
    return found
