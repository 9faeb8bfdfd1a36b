"""The dispatch table of this broker: every request handler, constructed with the components that it needs."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.api.acls import CreateAclsHandler, DeleteAclsHandler, DescribeAclsHandler
from txbroker.api.alter_configs import AlterConfigsHandler, IncrementalAlterConfigsHandler
from txbroker.api.alter_scram_credentials import AlterUserScramCredentialsHandler
from txbroker.api.api_versions import ApiVersionsHandler, FinalizedLevel
from txbroker.api.authorization import Authorizer
from txbroker.api.client_quotas import AlterClientQuotasHandler, DescribeClientQuotasHandler
from txbroker.api.config_resources import ConfigResources
from txbroker.api.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from txbroker.api.controller_requests import LeaderAndIsrHandler, StopReplicaHandler, UpdateMetadataHandler
from txbroker.api.controller_services import AllocateProducerIdsHandler, AlterPartitionHandler, ControlledShutdownHandler, OwnController
from txbroker.api.create_partitions import CreatePartitionsHandler
from txbroker.api.create_topics import CreateTopicsHandler
from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.delete_records import DeleteRecordsHandler
from txbroker.api.delete_topics import DeleteTopicsHandler
from txbroker.api.describe_cluster import DescribeClusterHandler
from txbroker.api.describe_configs import DescribeConfigsHandler
from txbroker.api.describe_producers import DescribeProducersHandler
from txbroker.api.describe_topic_partitions import DescribeTopicPartitionsHandler
from txbroker.api.elect_leaders import ElectLeadersHandler
from txbroker.api.endpoints import Endpoints
from txbroker.api.fetch import FetchHandler
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.find_coordinator import FindCoordinatorHandler
from txbroker.api.group_admin import DeleteGroupsHandler, DescribeGroupsHandler, ListGroupsHandler
from txbroker.api.group_membership import HeartbeatHandler, JoinGroupHandler, LeaveGroupHandler, SyncGroupHandler
from txbroker.api.group_offsets import OffsetCommitHandler, OffsetDeleteHandler, OffsetFetchHandler
from txbroker.api.init_producer_id import InitProducerIdHandler
from txbroker.api.list_offsets import ListOffsetsHandler
from txbroker.api.log_dirs import AlterReplicaLogDirsHandler, DescribeLogDirsHandler
from txbroker.api.metadata import MetadataHandler
from txbroker.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from txbroker.api.partition_reassignments import AlterPartitionReassignmentsHandler, ListPartitionReassignmentsHandler
from txbroker.api.produce import ProduceHandler
from txbroker.api.registry import Registry
from txbroker.api.sasl_authenticate import SaslAuthenticateHandler
from txbroker.api.sasl_handshake import SaslHandshakeHandler
from txbroker.api.scram_credentials import DescribeUserScramCredentialsHandler
from txbroker.api.topic_creation import TopicCreation
from txbroker.api.topic_operations import LogMaintenance, TopicOperations
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.api.transaction_admin import DescribeTransactionsHandler, ListTransactionsHandler
from txbroker.api.transaction_requests import AddOffsetsToTxnHandler, AddPartitionsToTxnHandler, EndTxnHandler
from txbroker.api.txn_offset_commit import TxnOffsetCommitHandler
from txbroker.api.write_txn_markers import WriteTxnMarkersHandler
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.config_store import ConfigAdmin
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_data import ProducerIdBlock
from txbroker.cluster.node_paths import Entity
from txbroker.cluster.own_broker import OwnBroker
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.cluster.topics import TopicAdmin
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.directories import LogDirectories
from txbroker.purgatory import Purgatory
from txbroker.repeated_lines import RepeatedLines
from txbroker.security.acl_store import AclStore
from txbroker.security.audit_trail import AuditTrail
from txbroker.security.principals import super_users
from txbroker.transactions.coordinator import TransactionCoordinator
from txbroker.transactions.verification import TransactionVerifier


@lazy_dataclass(frozen=True, kw_only=True, slots=True)
class HandlerDependencies:
    """The components that handlers need."""

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


def build_registry(parts: HandlerDependencies, clock: Callable[[], float] | None) -> Registry:
    """All request handlers; ApiVersions advertises what is registered here. `clock`: monotonic seconds, to measure request times."""
    p = parts
    registry = Registry(clock=clock, quotas=p.quotas, authorizer=p.authorizer, audit=p.audit, lines=RepeatedLines(p.monotonic_s))
    resources = ConfigResources(p.broker_id, p.image)
    leaders = CurrentLeaders(p.replicas, p.image, p.endpoints)
    operations = TopicOperations(p.image, p.replicas, p.maintenance, p.reread_topic)

    def check_controller() -> None:
        if p.image.controller_id != p.broker_id:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)

    for handler in (
        ApiVersionsHandler(registry.ranges, p.transaction_version),
        ProduceHandler(p.replicas, leaders, p.produce, p.verifier, p.now_ms, p.monotonic_s),
        FetchHandler(
            p.replicas,
            p.image,
            p.sessions,
            p.fetch,
            p.monotonic_s,
            leaders=leaders,
            quota=p.leader_quota,
            client_quotas=p.quotas,
            fetch_max_bytes=p.config.int("fetch.max.bytes"),
            replica_selector=p.config.optional_text("replica.selector.class"),
        ),
        ListOffsetsHandler(p.replicas),
        MetadataHandler(p.image, p.endpoints, p.creation, p.waiting, p.cluster_id),
        OffsetForLeaderEpochHandler(p.replicas),
        InitProducerIdHandler(p.next_producer_id, p.transactions),
        p.adding,
        AddOffsetsToTxnHandler(p.transactions, p.image, p.creation),
        EndTxnHandler(p.transactions),
        DescribeTransactionsHandler(p.transactions),
        ListTransactionsHandler(p.transactions, p.now_ms),
        FindCoordinatorHandler(p.image, p.endpoints, p.creation),
        JoinGroupHandler(p.coordinator),
        SyncGroupHandler(p.coordinator),
        HeartbeatHandler(p.coordinator),
        LeaveGroupHandler(p.coordinator),
        OffsetCommitHandler(p.coordinator, p.image),
        OffsetFetchHandler(p.coordinator, p.image),
        OffsetDeleteHandler(p.coordinator, p.image),
        TxnOffsetCommitHandler(p.coordinator, p.image, p.replicas, p.verifier),
        ListGroupsHandler(p.coordinator),
        DescribeGroupsHandler(p.coordinator),
        DeleteGroupsHandler(p.coordinator),
        CreateTopicsHandler(p.topic_admin, p.waiting, p.config, p.quotas, check_controller),
        DeleteTopicsHandler(
            p.topic_admin, p.waiting, p.image, p.quotas, check_controller, lambda: p.config.boolean("delete.topic.enable")
        ),
        CreatePartitionsHandler(p.topic_admin, p.waiting, p.quotas, check_controller),
        DeleteRecordsHandler(p.replicas, p.deletes),
        DescribeConfigsHandler(resources, p.config_admin, p.config, operations),
        AlterConfigsHandler(resources, p.config_admin, p.config, operations, p.random_bytes),
        IncrementalAlterConfigsHandler(resources, p.config_admin, p.config, operations, p.random_bytes),
        DescribeClientQuotasHandler(p.config_admin),
        AlterClientQuotasHandler(p.config_admin),
        DescribeUserScramCredentialsHandler(p.config_admin),
        AlterUserScramCredentialsHandler(p.config_admin, check_controller, p.reread_client, _super_users(p.config)),
        DescribeClusterHandler(p.image, p.endpoints, p.cluster_id),
        DescribeTopicPartitionsHandler(p.image, p.endpoints, p.config.int("max.request.partition.size.limit")),
        DescribeLogDirsHandler(p.directories, p.replicas),
        AlterReplicaLogDirsHandler(p.directories, p.now_ms),
        DescribeProducersHandler(p.replicas),
        p.markers,
        DescribeAclsHandler(p.acls),
        CreateAclsHandler(p.acls),
        DeleteAclsHandler(p.acls),
        SaslHandshakeHandler(),
        SaslAuthenticateHandler(),
        ConsumerGroupHeartbeatHandler(),
        ElectLeadersHandler(p.controller, p.image, p.waiting),
        AlterPartitionReassignmentsHandler(p.controller),
        ListPartitionReassignmentsHandler(p.controller),
    ):
        registry.register(handler)
    return registry


def _super_users(config: BrokerConfig) -> frozenset[str]:
    """Those that have an effect."""
    return super_users(config.optional_text("super.users")) if config.text("authorizer.class.name") else frozenset()


def register_for_cluster(
    registry: Registry,
    own: OwnBroker,
    controller: OwnController,
    allocate_producer_ids: Callable[[int], Deferred[ProducerIdBlock]],
) -> None:
    """Add the handlers of requests between brokers and to the controller. A broker alone does not serve or advertise them."""
    for handler in (
        LeaderAndIsrHandler(own),
        StopReplicaHandler(own),
        UpdateMetadataHandler(own),
        AlterPartitionHandler(controller),
        ControlledShutdownHandler(controller),
        AllocateProducerIdsHandler(controller, allocate_producer_ids),
    ):
        registry.register(handler)
