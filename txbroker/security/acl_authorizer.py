"""Decides what clients may do, by the ACLs of the moment (Kafka's AclAuthorizer).

Decisions are kept by principal and host until the ACLs change, so that a request costs the same with ten ACLs and with ten thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Protocol

from txbroker.security.acl_index import ACL, EVERYONE, NO_ACL, SUPER_USER, AclIndex, Decision, Rule
from txbroker.security.acl_model import AclOperation, AclResource
from txbroker.security.principals import java_address

# Names come from clients. Of all principals together; one takes some 300 bytes.
DECISIONS_MAX = 50_000
KEPT_NAME_MAX = 256

_Key = tuple[int, str | None]  # operation and type as one number, whose hash is cheap; and the name, None: any resource of the type


class Client(Protocol):
    """The session of a client. `principal`: Kafka's "Type:name"; `peer_host`: its address as the socket reports it."""

    @property
    def principal(self) -> str: ...

    @property
    def peer_host(self) -> str: ...


class AclAuthorizer:
    """`index`: the ACLs of the moment, without any before the first `publish`. `super_users` may do everything.

    `allow_everyone`: whether resources without ACLs may be used by all (allow.everyone.if.no.acl.found). `records_use`: see
    api.authorization.Authorizer.
    """

    allows_all = False

    def __init__(self, super_users: Collection[str], *, allow_everyone: bool, records_use: bool = False) -> None:
        self.index = AclIndex({})
        self.records_use = records_use
        self.denials: Counter[tuple[str, str]] = Counter()
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._decisions: dict[tuple[str, str], dict[_Key, bool]] = {}
        self._count = 0

    def publish(self, index: AclIndex) -> None:
        """The ACLs have changed: all at once, for every request that is authorized from now on."""
        self.index = index
        self._forget()

    def authorize(self, client: Client, operation: AclOperation, resource: AclResource, name: str) -> bool:
        """Whether a client may do this."""
        if client.principal in self._super_users:
            return True
        known = self._decisions.get((client.principal, client.peer_host))
        allowed = None if known is None else known.get((operation << 4 | resource, name))
        if allowed is not None:
            return allowed
        decision = self.decide(client.principal, java_address(client.peer_host), operation, resource, name)
        if len(name) <= KEPT_NAME_MAX:
            self._keep(client, (operation << 4 | resource, name), decision.allowed)
        return decision.allowed

    def authorize_any(self, client: Client, operation: AclOperation, resource: AclResource) -> bool:
        """Whether there can be a resource of this type with which the client may do this (KIP-679)."""
        if client.principal in self._super_users:
            return True
        allowed = self._decisions.get((client.principal, client.peer_host), {}).get((operation << 4 | resource, None))
        if allowed is None:
            host = java_address(client.peer_host)
            allowed = self.index.decide_any(client.principal, host, operation, resource, allow_everyone=self._allow_everyone)
            self._keep(client, (operation << 4 | resource, None), allowed)
        return allowed

    def decide(self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> Decision:
        """The decision for one that is not a super user, and the ACL that it follows from. `host`: as Java prints it."""
        decision = self.index.decide(principal, host, operation, resource, name)
        if not decision.has_acls and self._allow_everyone:
            return decision._replace(allowed=True)
        return decision

    def rule(self, client: Client, operation: AclOperation, resource: AclResource, name: str) -> Rule:
        """What a decision follows from."""
        if client.principal in self._super_users:
            return Rule(SUPER_USER)
        decision = self.decide(client.principal, java_address(client.peer_host), operation, resource, name)
        if decision.by is not None:
            return Rule(ACL, decision.by)
        return Rule(EVERYONE if decision.allowed else NO_ACL)

    def _keep(self, client: Client, key: _Key, allowed: bool) -> None:
        if self._count >= DECISIONS_MAX:
            self._forget()
        self._decisions.setdefault((client.principal, client.peer_host), {})[key] = allowed
        self._count += 1

    def _forget(self) -> None:
        self._decisions = {}
        self._count = 0
