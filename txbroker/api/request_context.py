"""The origin of a request: its header, and the connection on which it was received."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbroker.api.resources import CLUSTER_NAME, AclOperation, AclResource
from txbroker.security.principals import ANONYMOUS

if TYPE_CHECKING:
    from txbroker.security.audit_trail import AuditTrail
    from txbroker.security.sasl_login import SaslLogin


class Session:
    """One client connection, as handlers see it.

    `peer_host`/`peer_port` and `local_host`/`local_port` are the two ends as the socket reports them; the local end is the address that
    the client has connected to, also if the listener is bound to a wildcard. `principal` is Kafka's "Type:name". `software` is the name
    and version of the client's library, once it has sent them (ApiVersions v3, KIP-511), and empty before. `login`: None without SASL.
    `has_tls`: the connection is encrypted. `audit`: the broker's audit log, if it has one.
    """

    __slots__ = ("audit", "has_tls", "listener", "local_host", "local_port", "login", "number", "peer_host", "peer_port", "principal",
                 "software")  # fmt: skip

    def __init__(
        self,
        *,
        peer_host: str,
        peer_port: int,
        local_host: str,
        local_port: int,
        listener: str,
        number: int,
        principal: str = ANONYMOUS,
    ) -> None:
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.local_host = local_host
        self.local_port = local_port
        self.listener = listener
        self.number = number
        self.principal = principal
        self.software = ""
        self.login: SaslLogin | None = None
        self.has_tls = False
        self.audit: AuditTrail | None = None

    @property
    def protocol(self) -> str:
        """Kafka's security protocol of the listener."""
        if self.login is None:
            return "SSL" if self.has_tls else "PLAINTEXT"
        return "SASL_SSL" if self.has_tls else "SASL_PLAINTEXT"

    @property
    def connection_id(self) -> str:
        """Unique for a listener since its start, in Kafka's form: local end, peer, and a number."""
        return f"{self.local_host}:{self.local_port}-{self.peer_host}:{self.peer_port}-{self.number}"


class RequestContext:
    """One request's header and its session. Handlers may keep it. `is_checked`: the client may not do everything (api/authorization.py)."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "session")

    is_checked = False

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, session: Session) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.session = session

    def may(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, *, logged: bool = True) -> bool:
        """Whether the client may do this. `logged`: whether a denial is: not if it only leaves something out, or another right suffices."""
        return True

    @property
    def sender(self) -> str:
        """Who has sent it, for the log: principal, client id and address."""
        return f"{self.session.principal} (client id {self.client_id or ''!r}, {self.session.peer_host})"

    @property
    def peer_host(self) -> str:
        return self.session.peer_host

    @property
    def peer_port(self) -> int:
        return self.session.peer_port

    @property
    def local_host(self) -> str:
        return self.session.local_host

    @property
    def local_port(self) -> int:
        return self.session.local_port

    @property
    def listener(self) -> str:
        return self.session.listener

    @property
    def principal(self) -> str:
        return self.session.principal

    @property
    def connection_id(self) -> str:
        return self.session.connection_id
