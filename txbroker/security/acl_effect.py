"""ACLs that brokers store, as Kafka does, and that apply to no client or to no resource."""

from __future__ import annotations

from txbroker.config.principals import mistake
from txbroker.errors import BrokerError
from txbroker.names import check_topic_name
from txbroker.security.acl_model import ANY_HOST, ANY_NAME, AclBinding, AclResource, PatternType, ResourcePattern
from txbroker.security.principals import is_address, java_address


def without_effect(binding: AclBinding) -> str | None:
    """Why an ACL has not the effect that it seems to have, and what to write instead; None if nothing is known."""
    wrong = mistake(binding.entry.principal)
    if wrong is not None:
        return f"no client has the principal {binding.entry.principal!r}: {wrong}"
    return _host(binding.entry.host) or _resource(binding.resource)


def _host(host: str) -> str | None:
    if host == ANY_HOST:
        return None
    if not is_address(host):
        return (
            f"no client has the address {host!r}: names and networks are not resolved; specify single addresses such as 10.0.0.1, or "
            f"{ANY_HOST} for all"
        )
    java = java_address(host)
    return None if java == host else f"no client has the address {host!r}: addresses are compared as text; write {java}"


def _resource(resource: ResourcePattern) -> str | None:
    kind, pattern, name = resource
    if pattern is PatternType.PREFIXED and name == ANY_NAME:
        return f"it applies only to names that begin with the character {ANY_NAME}: write the literal {ANY_NAME} for all names"
    if kind is AclResource.USER and name != ANY_NAME and pattern is PatternType.LITERAL:
        wrong = mistake(name) if ":" in name else "write User:name"
        return None if wrong is None else f"no client has the principal {name!r}: {wrong}"
    if kind is not AclResource.TOPIC or name == ANY_NAME:
        return None
    try:
        check_topic_name(name if pattern is PatternType.LITERAL else f"{name}x")
    except BrokerError as error:
        prefix = name.rstrip(ANY_NAME)
        advice = f": write the prefix {prefix!r} with --resource-pattern-type prefixed" if name != prefix else ""
        return f"no topic can have this name: {error.message}{advice}"
    return None
