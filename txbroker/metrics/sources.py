"""The components whose metrics are served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from txbroker.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from txbroker.api.fetch_sessions import FetchSessions
    from txbroker.api.registry import Registry
    from txbroker.broker.audit_log import AuditLog
    from txbroker.broker.sasl_listeners import SaslListeners
    from txbroker.broker.tls_listeners import TlsListeners
    from txbroker.cluster.image import ClusterImage
    from txbroker.cluster.replicas import Replicas
    from txbroker.cluster.suspicions import FailoverCounts
    from txbroker.cluster.tree.session_tree import SessionCounts
    from txbroker.groups.coordinator import GroupCoordinator
    from txbroker.log.directories import LogDirectories
    from txbroker.maintenance.log_cleaner import LogCleaner
    from txbroker.maintenance.retention import Retention
    from txbroker.purgatory import Purgatory
    from txbroker.transactions.coordinator import TransactionCoordinator
    from txbroker.transactions.marker_queues import MarkerQueues
    from txbroker.transactions.verification import VerificationCounts
    from txbroker.transport.hub import Hub


@lazy_dataclass(frozen=True, kw_only=True, slots=True)
class MetricSources:
    """The components of a started broker, as far as they have metrics. `transaction_max_ms`: transaction.max.timeout.ms."""

    listeners: Sequence[str]
    hub: Hub
    registry: Registry
    replicas: Replicas
    directories: LogDirectories
    cleaner: LogCleaner
    retention: Retention
    image: ClusterImage
    coordinator: GroupCoordinator
    transactions: TransactionCoordinator
    marker_queues: MarkerQueues
    verifications: VerificationCounts
    transaction_max_ms: int
    sessions: FetchSessions
    purgatories: dict[str, Purgatory]  # by Kafka's name for them
    is_controller: Callable[[], bool]
    now_ms: Callable[[], int]
    zookeeper: SessionCounts | None  # None for a broker alone
    failover: FailoverCounts | None  # None without connection-loss failover
    takeovers: Callable[[], int]
    tls: TlsListeners
    sasl: SaslListeners
    audit: AuditLog
