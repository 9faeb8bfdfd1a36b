"""The components that request handlers need."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from txbroker.api.api_versions import FinalizedLevel
    from txbroker.api.authorization import Authorizer
    from txbroker.api.controller_services import OwnController
    from txbroker.api.endpoints import Endpoints
    from txbroker.api.fetch_sessions import FetchSessions
    from txbroker.api.topic_creation import TopicCreation
    from txbroker.api.topic_operations import LogMaintenance
    from txbroker.api.topic_waiting import TopicWaiting
    from txbroker.api.transaction_requests import AddPartitionsToTxnHandler
    from txbroker.api.write_txn_markers import WriteTxnMarkersHandler
    from txbroker.client_quotas.quotas import ClientQuotas
    from txbroker.cluster.config_store import ConfigAdmin
    from txbroker.cluster.image import ClusterImage
    from txbroker.cluster.node_paths import Entity
    from txbroker.cluster.replicas import Replicas
    from txbroker.cluster.replication_quota import ReplicationQuota
    from txbroker.cluster.topics import TopicAdmin
    from txbroker.config.resolve import BrokerConfig
    from txbroker.groups.coordinator import GroupCoordinator
    from txbroker.log.directories import LogDirectories
    from txbroker.purgatory import Purgatory
    from txbroker.security.acl_store import AclStore
    from txbroker.security.audit_trail import AuditTrail
    from txbroker.transactions.coordinator import TransactionCoordinator
    from txbroker.transactions.verification import TransactionVerifier


@lazy_dataclass(frozen=True, kw_only=True, slots=True)
class HandlerDependencies:
    """Of one broker."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    image: ClusterImage
    controller: OwnController
    replicas: Replicas
    directories: LogDirectories
    coordinator: GroupCoordinator
    transactions: TransactionCoordinator
    markers: WriteTxnMarkersHandler
    adding: AddPartitionsToTxnHandler
    verifier: TransactionVerifier
    transaction_version: Callable[[], FinalizedLevel]
    topic_admin: TopicAdmin
    config_admin: ConfigAdmin
    waiting: TopicWaiting
    creation: TopicCreation
    endpoints: Endpoints
    sessions: FetchSessions
    maintenance: LogMaintenance
    reread_topic: Callable[[str], Deferred[None]]
    reread_client: Callable[[Entity], Deferred[None]]
    produce: Purgatory
    fetch: Purgatory
    deletes: Purgatory
    leader_quota: ReplicationQuota
    quotas: ClientQuotas
    acls: AclStore | None
    authorizer: Authorizer | None
    audit: AuditTrail | None
    next_producer_id: Callable[[], Deferred[int]]
    monotonic_s: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    now_ms: Callable[[], int]

    def check_controller(self) -> None:
        """NOT_CONTROLLER if this broker is not the controller."""
        if self.image.controller_id != self.broker_id:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
