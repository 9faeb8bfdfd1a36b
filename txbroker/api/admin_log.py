"""What clients change in a cluster, in the broker's log and in its audit log: who, what, and from which value to which."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from txbroker.api.request_context import RequestContext
from txbroker.cluster.node_paths import BROKER_TYPE, CLIENT_TYPE, DEFAULT_NAME, TOPIC_TYPE, USER_TYPE, Entity
from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.origins import HIDDEN
from txbroker.names import TopicPartition, amount
from txbroker.security.acl_model import AclBinding, AclResource
from txbroker.wire.scram import HASHES

if TYPE_CHECKING:
    from txbroker.security.token_nodes import Token

log = logging.getLogger("txbroker.admin")

NOT_SET = "(not set)"
# Names and values come from clients: longer ones are cut.
TEXT_MAX = 1000
LISTED_MAX = 100

TOPIC, GROUP = AclResource.TOPIC.title, AclResource.GROUP.title
_TYPES = {TOPIC_TYPE: TOPIC, BROKER_TYPE: "Broker", USER_TYPE: AclResource.USER.title, CLIENT_TYPE: "ClientId"}


def topic_created(name: str, partitions: int, replicas: int, configs: Mapping[str, str | None], by: RequestContext | None) -> None:
    """A topic was created. `by`: None for one that the broker creates itself."""
    sender = "this broker, automatically" if by is None else by.sender
    shown = {key: _shown(key, value, None) for key, value in sorted(configs.items())}
    with_configs = f", {', '.join(f'{key}={value}' for key, value in shown.items())}" if configs else ""
    log.info("topic %s created by %s: %s, replication factor %d%s", name, sender, amount(partitions, "partition"), replicas, with_configs)
    if by is not None:
        _audit(by, "created", TOPIC, name, {"partitions": partitions, "replication_factor": replicas, "configs": shown})


def partitions_added(name: str, partitions: int, by: RequestContext) -> None:
    """A topic has more partitions."""
    log.info("topic %s has %s now, by %s", name, amount(partitions, "partition"), by.sender)
    _audit(by, "partitions added", TOPIC, name, {"partitions": partitions})


def topic_deleted(name: str, by: RequestContext) -> None:
    """The deletion of a topic is durable."""
    log.info("topic %s deleted by %s", name, by.sender)
    _audit(by, "deleted", TOPIC, name)


def topic_operation(name: str, operation: str, by: RequestContext) -> None:
    """The cleaner or retention works on a topic on demand."""
    log.info("operation %s on topic %s requested by %s", operation[:TEXT_MAX], name, by.sender)
    _audit(by, "operation requested", TOPIC, name, {"operation": operation[:TEXT_MAX]})


def records_deleted(topic_partition: TopicPartition, offset: int, by: RequestContext) -> None:
    """The records before an offset are deleted. Streams applications do this all the time."""
    log.debug("records of %s before offset %d deleted by %s", topic_partition, offset, by.sender)
    _audit(by, "records deleted", TOPIC, topic_partition.topic, {"partition": topic_partition.partition, "offset": offset}, repeats=True)


def groups_deleted(groups: Iterable[str], by: RequestContext) -> None:
    """Groups were deleted, with their offsets."""
    for group in groups:
        log.info("group %r deleted by %s", group[:TEXT_MAX], by.sender)
        _audit(by, "deleted", GROUP, group)


def offsets_deleted(group: str, partitions: Collection[TopicPartition], by: RequestContext) -> None:
    """Offsets of a group were deleted."""
    if partitions:
        shown = sorted(map(str, partitions))[:LISTED_MAX]
        log.info("offsets of group %r deleted by %s: %s", group[:TEXT_MAX], by.sender, ", ".join(shown))
        _audit(by, "offsets deleted", GROUP, group, {"count": len(partitions), "partitions": shown})


def partition_changed(what: str, topic_partition: TopicPartition, details: Mapping[str, Any], by: RequestContext) -> None:
    """An administrator has reassigned or moved a partition, or has its leader elected."""
    shown = ", ".join(f"{key} {value}" for key, value in details.items())
    log.info("%s of %s by %s: %s", what, topic_partition, by.sender, shown)
    _audit(by, what, TOPIC, topic_partition.topic, {"partition": topic_partition.partition, **details})


def acls_changed(how: str, bindings: Collection[AclBinding], by: RequestContext) -> None:
    """ACLs were created or deleted; one line for each."""
    for binding in bindings:
        log.info("ACL %s by %s: %s", how, by.sender, str(binding)[:TEXT_MAX])
        _audit(by, f"ACL {how}", binding.resource.type.title, binding.resource.name, {"acl": str(binding)[:TEXT_MAX]})


def super_user_changed(user: str, by: RequestContext) -> None:
    """The password of a principal that may do everything was set or removed."""
    log.warning("the password of User:%s, which is in super.users, was changed by %s", user[:TEXT_MAX], by.sender)
    _audit(by, "password of a super user changed", AclResource.USER.title, user, {"super_user": True})


def token_changed(how: str, token: Token, by: RequestContext) -> None:
    """A delegation token was created or removed, or ends at another time. Its password is not logged."""
    log.info("delegation token %s of %s %s by %s", token.id, token.owner[:TEXT_MAX], how, by.sender)
    details = {"owner": token.owner[:TEXT_MAX], "renewers": list(token.renewers[:LISTED_MAX]), "expires_ms": token.expires_ms}
    _audit(by, f"delegation token {how}", AclResource.DELEGATION_TOKEN.title, token.id, details)


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
            changes = {
                key: {"from": _shown(key, self._before.get(key), entity), "to": _shown(key, self._after.get(key), entity)} for key in keys
            }
            shown = ", ".join(f"{key}: {change['from']} -> {change['to']}" for key, change in changes.items())
            log.info("configuration of %s changed by %s: %s", _name(entity), by.sender, shown)
            name = unquote_plus(entity.name) if entity.type in (USER_TYPE, CLIENT_TYPE) else entity.name
            _audit(by, "configuration changed", _TYPES.get(entity.type, entity.type), name, {"changes": changes})


def _audit(
    by: RequestContext, what: str, resource_type: str, name: str, details: Mapping[str, Any] | None = None, *, repeats: bool = False
) -> None:
    audit = by.session.audit
    if audit is not None:
        audit.changed(by.session, by.client_id, by.api_key, what, resource_type, name, details or {}, repeats=repeats)


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
