"""The authorizer of a broker, and the ACLs that it goes by."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from txbroker.broker.environment import Environment
from txbroker.broker.identity import is_clustered
from txbroker.cluster.tree.interface import Tree
from txbroker.config.resolve import BrokerConfig
from txbroker.security.principals import ANONYMOUS, super_users

if TYPE_CHECKING:
    from txbroker.security.acl_authorizer import AclAuthorizer
    from txbroker.security.acl_store import AclStore
    from txbroker.security.audit_trail import AuditTrail

log = logging.getLogger("txbroker.security")


class Access:
    """`authorizer` and `acls`: both None if authorizer.class.name is empty, and every client may do everything.

    `audit`: the audit log, if there is one.
    """

    def __init__(self, environment: Environment, config: BrokerConfig, tree: Tree, audit: AuditTrail | None) -> None:
        self.audit = audit
        self.authorizer: AclAuthorizer | None = None
        self.acls: AclStore | None = None
        if not config.text("authorizer.class.name"):
            return
        from txbroker.security.acl_authorizer import AclAuthorizer
        from txbroker.security.acl_store import AclStore

        users, everyone = super_users(config.optional_text("super.users")), config.boolean("allow.everyone.if.no.acl.found")
        self.authorizer = AclAuthorizer(users, allow_everyone=everyone, records_use=audit is not None and audit.records_use)
        clock, chance = environment.reactor, environment.random.random
        self.acls = AclStore(tree, self.authorizer.publish, clock, chance, is_shared=is_clustered(config))
        if ANONYMOUS in users:
            log.warning(
                "super.users contains %s: every client of a PLAINTEXT listener, and of one with TLS that requires no certificate, "
                "has all permissions",
                ANONYMOUS,
            )

    async def start(self) -> None:
        """Read the ACLs."""
        if self.acls is not None:
            await self.acls.start()

    def renew(self) -> None:
        """The next session of the tree has begun."""
        if self.acls is not None:
            self.acls.renew()

    def stop(self) -> None:
        """Stop reading the ACLs."""
        if self.acls is not None:
            self.acls.stop()
