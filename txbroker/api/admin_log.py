"""What clients change in a cluster, in the broker's log: who, what, and from which value to which."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from txbroker.api.request_context import RequestContext
from txbroker.cluster.node_paths import BROKER_TYPE, DEFAULT_NAME, TOPIC_TYPE, Entity
from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.origins import HIDDEN
from txbroker.names import amount
from txbroker.security.acl_model import AclBinding
from txbroker.wire.scram import HASHES

log = logging.getLogger("txbroker.admin")

NOT_SET = "(not set)"
# Names and values come from clients: longer ones are cut.
TEXT_MAX = 1000


def topic_created(name: str, partitions: int, replicas: int, configs: Mapping[str, str | None], by: RequestContext | None) -> None:
    """A topic was created. `by`: None for one that the broker creates itself."""
    sender = "this broker, automatically" if by is None else by.sender
    with_configs = f", {', '.join(f'{key}={_shown(key, value, None)}' for key, value in sorted(configs.items()))}" if configs else ""
    log.info("topic %s created by %s: %s, replication factor %d%s", name, sender, amount(partitions, "partition"), replicas, with_configs)


def partitions_added(name: str, partitions: int, by: RequestContext) -> None:
    """A topic has more partitions."""
    log.info("topic %s has %s now, by %s", name, amount(partitions, "partition"), by.sender)


def acls_changed(how: str, bindings: Collection[AclBinding], by: RequestContext) -> None:
    """ACLs were created or deleted; one line for each."""
    for binding in bindings:
        log.info("ACL %s by %s: %s", how, by.sender, str(binding)[:TEXT_MAX])


def super_user_changed(user: str, by: RequestContext) -> None:
    """The password of a principal that may do everything was set or removed."""
    log.warning("the password of User:%s, which is in super.users, was changed by %s", user[:TEXT_MAX], by.sender)


class RecordedChange:
    """A configuration as a function of the present one, which remembers its last argument and result, for the log."""

    def __init__(self, compute: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        self._compute = compute
        self._before: Mapping[str, str] = {}
        self._after: Mapping[str, str] = {}

    def __call__(self, before: Mapping[str, str]) -> Mapping[str, str]:
        self._after = self._compute(before)
        self._before = dict(before)
        return self._after

    def log(self, entity: Entity, by: RequestContext) -> None:
        """The change was stored."""
        keys = [key for key in sorted({**self._before, **self._after}) if self._before.get(key) != self._after.get(key)]
        if keys:
            changes = ", ".join(
                f"{key}: {_shown(key, self._before.get(key), entity)} -> {_shown(key, self._after.get(key), entity)}" for key in keys
            )
            log.info("configuration of %s changed by %s: %s", _name(entity), by.sender, changes)


def _shown(key: str, value: str | None, entity: Entity | None) -> str:
    if value is None:
        return NOT_SET
    known = BROKER_KEYS.get(key)
    # An unknown key of a broker may be a secret of a plugin, as in Kafka.
    secret = known.sensitive if known is not None else key in HASHES or (entity is not None and entity.type == BROKER_TYPE)
    return HIDDEN if secret else value[:TEXT_MAX]


def _name(entity: Entity) -> str:
    if entity.type == TOPIC_TYPE:
        return f"topic {entity.name}"
    if entity.type == BROKER_TYPE:
        return "all brokers" if entity.name == DEFAULT_NAME else f"broker {entity.name}"
    return f"{entity.type} {entity.name}"
