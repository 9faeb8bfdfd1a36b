"""What client quotas are configured for: users, client ids, and pairs of both, or addresses, each of them named or the default.

Their nodes are Kafka's: `/config/users/U`, `/config/users/U/clients/C`, `/config/clients/C`, `/config/ips/A`, with percent-encoded names
(Kafka's Sanitizer) or `<default>`, which no encoded name can be.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote_plus

from txbroker.cluster.node_paths import CLIENT_TYPE, DEFAULT_NAME, IP_TYPE, USER_TYPE, Entity

# Longer names have no quotas of their own. Clients whose names begin with the same characters share a rate.
NAME_LENGTH_MAX = 256


class QuotaEntity(NamedTuple):
    """A user, a client id, or both, or an address; encoded, `DEFAULT_NAME` for the default, None for what it does not have."""

    user: str | None
    client_id: str | None
    ip: str | None = None

    @property
    def node(self) -> Entity:
        """The entity in the metadata tree."""
        if self.ip is not None:
            return Entity(IP_TYPE, self.ip)
        if self.user is None:
            return Entity(CLIENT_TYPE, self.client_id or DEFAULT_NAME)
        return Entity(USER_TYPE, self.user if self.client_id is None else f"{self.user}/{CLIENT_TYPE}/{self.client_id}")


def entity_of(node: Entity) -> QuotaEntity | None:
    """The quota entity of a node; None for another node."""
    if node.type == CLIENT_TYPE:
        return QuotaEntity(None, node.name)
    if node.type == IP_TYPE:
        return QuotaEntity(None, None, node.name)
    if node.type != USER_TYPE:
        return None
    names = node.name.split("/")
    if len(names) == 1:
        return QuotaEntity(names[0], None)
    return QuotaEntity(names[0], names[2]) if len(names) == 3 and names[1] == CLIENT_TYPE else None


@lru_cache(maxsize=1000)
def encoded(name: str) -> str:
    """A user or client id with quotas as in the names of nodes."""
    return sanitized(name[:NAME_LENGTH_MAX])


def sanitized(name: str) -> str:
    """A name as in the names of nodes (Kafka's Sanitizer)."""
    return quote(name, safe="").replace("~", "%7E")


def decoded(name: str) -> str | None:
    """The user, client id or address; None for the default."""
    return None if name == DEFAULT_NAME else unquote_plus(name)


def candidates(user: str, client_id: str) -> tuple[QuotaEntity, ...]:
    """The entities whose quota a client may have, the first one with a quota wins (Kafka's order, KIP-55)."""
    return (
        QuotaEntity(user, client_id),
        QuotaEntity(user, DEFAULT_NAME),
        QuotaEntity(user, None),
        QuotaEntity(DEFAULT_NAME, client_id),
        QuotaEntity(DEFAULT_NAME, DEFAULT_NAME),
        QuotaEntity(DEFAULT_NAME, None),
        QuotaEntity(None, client_id),
        QuotaEntity(None, DEFAULT_NAME),
    )
