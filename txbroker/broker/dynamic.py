"""Dynamic configurations (KIP-226): applies changes in the metadata tree to the running broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from txbroker.client_quotas.connection_rates import ConnectionRates
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster import node_paths
from txbroker.cluster.config_store import ConfigAdmin
from txbroker.cluster.node_paths import Entity
from txbroker.config.listener_keys import known_key
from txbroker.config.password_encoder import RandomBytes, Unavailable
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError
from txbroker.security.scram_credentials import ScramCredentials

log = logging.getLogger("txbroker.config")

Reconfigure = Callable[[Collection[str] | None], None]


async def encrypt_again(config: BrokerConfig, admin: ConfigAdmin, broker_id: int, random_bytes: RandomBytes) -> None:
    """Encrypt the passwords of this broker by the present secret where the old one was used (password.encoder.old.secret).

    If that fails, they stay as they are, and can still be read. Kafka's DynamicBrokerConfig.maybeReEncodePasswords.
    """
    passwords, entity = config.passwords, node_paths.broker_entity(broker_id)
    if passwords is None:
        return

    def compute(stored: Mapping[str, str]) -> dict[str, str]:
        return {name: passwords.encoded_again(text, random_bytes) if _is_secret(name) else text for name, text in stored.items()}

    try:
        before = await admin.read(entity)
        if compute(before) != before:
            await admin.change(entity, compute)
            log.info("the passwords of broker %d are encrypted by the present secret; remove password.encoder.old.secret", broker_id)
    except (BrokerError, Unavailable) as error:
        log.error("the passwords of broker %d are still encrypted by password.encoder.old.secret: %s", broker_id, error)


def _is_secret(name: str) -> bool:
    key = known_key(name)
    return key is not None and key.sensitive


class DynamicConfigs:
    """The observer of a ConfigWatcher, and the owner of `BrokerConfig`'s dynamic part."""

    def __init__(
        self, config: BrokerConfig, quotas: ClientQuotas, rates: ConnectionRates, credentials: ScramCredentials
    ) -> None:
        self._config = config
        self._quotas = quotas
        self._rates = rates
        self._credentials = credentials
        self._broker: Mapping[str, str] = {}
        self._default: Mapping[str, str] = {}
        self._missed: set[str] | None = set()  # topics that have changed since `opening_logs`; None: all
        self._reconfigure: Reconfigure = self._miss
        self._broker_changed: Callable[[], None] = lambda: None

    def opening_logs(self) -> None:
        """The logs are opened with the settings of now; `wire` applies what changes from here on."""
        self._missed = set()

    def wire(self, reconfigure: Reconfigure, broker_changed: Callable[[], None]) -> None:
        """Connect it to the logs, which are open, and to the listeners, which have the settings of the configuration file.

        `reconfigure` applies the settings of some topics, or of all, to their logs; `broker_changed` applies other changes. Components
        that read the configuration at each use need no call.
        """
        self._reconfigure = reconfigure
        self._broker_changed = broker_changed
        self._apply([broker_changed, partial(reconfigure, self._missed)])
        self._missed = set()

    def _miss(self, topics: Collection[str] | None) -> None:
        self._missed = None if topics is None or self._missed is None else {*self._missed, *topics}

    def __call__(self, entity: Entity, properties: Mapping[str, str]) -> None:
        """A configuration in the tree has changed."""
        if entity.type == node_paths.TOPIC_TYPE:
            self._reconfigure([entity.name])
            return
        if entity.type == node_paths.IP_TYPE:
            self._rates.configure(entity, properties)
            return
        if entity.type in node_paths.QUOTA_TYPES:
            self._quotas.configure(entity, properties)
            self._credentials.configure(entity, properties)
            return
        if entity == node_paths.ALL_BROKERS:
            self._default = properties
        else:
            self._broker = properties
        self._config.set_dynamic(self._broker, self._default)
        self._apply([self._broker_changed, partial(self._reconfigure, None)])

    def _apply(self, calls: Iterable[Callable[[], None]]) -> None:
        """Make all calls, and raise the first error: one of the listeners does not keep the change from the logs."""
        errors = []
        for call in calls:
            try:
                call()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
