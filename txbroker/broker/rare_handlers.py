"""The handlers of requests that most clients never send: their modules are imported for the first request of a family.

What is known of the APIs before is a table here, from which ApiVersions is answered; the registry compares it with the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from txbroker.api.registry import Api, Handler
from txbroker.broker.handler_dependencies import HandlerDependencies
from txbroker.config.resolve import BrokerConfig
from txbroker.wire.schema import parse_versions


def _api(key: int, name: str, versions: str) -> Api:
    return Api(key, name, parse_versions(versions))


def _for_login(key: int, name: str, versions: str) -> Api:
    return Api(key, name, parse_versions(versions), advertised=False, for_login=True)


def _groups(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.group_admin import DeleteGroupsHandler, DescribeGroupsHandler, ListGroupsHandler

    return DescribeGroupsHandler(p.coordinator), ListGroupsHandler(p.coordinator), DeleteGroupsHandler(p.coordinator)


def _new_groups(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler

    return (ConsumerGroupHeartbeatHandler(),)


def _logins(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.sasl_authenticate import SaslAuthenticateHandler
    from txbroker.api.sasl_handshake import SaslHandshakeHandler

    return SaslHandshakeHandler(), SaslAuthenticateHandler()


def _topic_deletion(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.delete_topics import DeleteTopicsHandler

    is_enabled = partial(p.config.boolean, "delete.topic.enable")
    return (DeleteTopicsHandler(p.topic_admin, p.waiting, p.image, p.quotas, p.check_controller, is_enabled),)


def _new_partitions(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.create_partitions import CreatePartitionsHandler

    return (CreatePartitionsHandler(p.topic_admin, p.waiting, p.quotas, p.check_controller),)


def _record_deletion(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.delete_records import DeleteRecordsHandler

    return (DeleteRecordsHandler(p.replicas, p.deletes),)


def _leader_epochs(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler

    return (OffsetForLeaderEpochHandler(p.replicas),)


def _transactional_offsets(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.txn_offset_commit import TxnOffsetCommitHandler

    return (TxnOffsetCommitHandler(p.coordinator, p.image, p.replicas, p.verifier),)


def _transactions(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.describe_producers import DescribeProducersHandler
    from txbroker.api.transaction_admin import DescribeTransactionsHandler, ListTransactionsHandler

    return (
        DescribeProducersHandler(p.replicas),
        DescribeTransactionsHandler(p.transactions),
        ListTransactionsHandler(p.transactions, p.now_ms),
    )


def _configs(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.alter_configs import AlterConfigsHandler, IncrementalAlterConfigsHandler
    from txbroker.api.config_resources import ConfigResources
    from txbroker.api.describe_configs import DescribeConfigsHandler
    from txbroker.api.topic_operations import TopicOperations

    resources = ConfigResources(p.broker_id, p.image)
    operations = TopicOperations(p.image, p.replicas, p.maintenance, p.reread_topic)
    return (
        DescribeConfigsHandler(resources, p.config_admin, p.config, operations),
        AlterConfigsHandler(resources, p.config_admin, p.config, operations, p.random_bytes),
        IncrementalAlterConfigsHandler(resources, p.config_admin, p.config, operations, p.random_bytes),
    )


def _acls(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.acls import CreateAclsHandler, DeleteAclsHandler, DescribeAclsHandler

    return DescribeAclsHandler(p.acls), CreateAclsHandler(p.acls), DeleteAclsHandler(p.acls)


def _quotas(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.client_quotas import AlterClientQuotasHandler, DescribeClientQuotasHandler

    return DescribeClientQuotasHandler(p.config_admin), AlterClientQuotasHandler(p.config_admin)


def _scram(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.alter_scram_credentials import AlterUserScramCredentialsHandler
    from txbroker.api.scram_credentials import DescribeUserScramCredentialsHandler

    return (
        DescribeUserScramCredentialsHandler(p.config_admin),
        AlterUserScramCredentialsHandler(p.config_admin, p.check_controller, p.reread_client, _super_users(p.config)),
    )


def _super_users(config: BrokerConfig) -> frozenset[str]:
    """Those that have an effect."""
    from txbroker.security.principals import super_users

    return super_users(config.optional_text("super.users")) if config.text("authorizer.class.name") else frozenset()


def _cluster(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.describe_cluster import DescribeClusterHandler

    return (DescribeClusterHandler(p.image, p.endpoints, p.cluster_id),)


def _topic_partitions(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.describe_topic_partitions import DescribeTopicPartitionsHandler

    return (DescribeTopicPartitionsHandler(p.image, p.endpoints, p.config.int("max.request.partition.size.limit")),)


def _log_directories(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.log_dirs import AlterReplicaLogDirsHandler, DescribeLogDirsHandler

    return AlterReplicaLogDirsHandler(p.directories, p.now_ms), DescribeLogDirsHandler(p.directories, p.replicas)


def _leaders(p: HandlerDependencies) -> Iterable[Handler]:
    from txbroker.api.elect_leaders import ElectLeadersHandler
    from txbroker.api.partition_reassignments import AlterPartitionReassignmentsHandler, ListPartitionReassignmentsHandler

    return (
        ElectLeadersHandler(p.controller, p.image, p.waiting),
        AlterPartitionReassignmentsHandler(p.controller),
        ListPartitionReassignmentsHandler(p.controller),
    )


FAMILIES: Mapping[Callable[[HandlerDependencies], Iterable[Handler]], tuple[Api, ...]] = {
    _groups: (_api(15, "DescribeGroups", "0-6"), _api(16, "ListGroups", "0-5"), _api(42, "DeleteGroups", "0-2")),
    _new_groups: (_api(68, "ConsumerGroupHeartbeat", "0-1"),),
    _logins: (_for_login(17, "SaslHandshake", "0-1"), _for_login(36, "SaslAuthenticate", "0-2")),
    _topic_deletion: (_api(20, "DeleteTopics", "0-6"),),
    _new_partitions: (_api(37, "CreatePartitions", "0-3"),),
    _record_deletion: (_api(21, "DeleteRecords", "0-2"),),
    _leader_epochs: (_api(23, "OffsetForLeaderEpoch", "0-4"),),
    _transactional_offsets: (_api(28, "TxnOffsetCommit", "0-5"),),
    _transactions: (
        _api(61, "DescribeProducers", "0"), _api(65, "DescribeTransactions", "0"), _api(66, "ListTransactions", "0-2"),
    ),
    _configs: (_api(32, "DescribeConfigs", "0-4"), _api(33, "AlterConfigs", "0-2"), _api(44, "IncrementalAlterConfigs", "0-1")),
    _acls: (_api(29, "DescribeAcls", "0-3"), _api(30, "CreateAcls", "0-3"), _api(31, "DeleteAcls", "0-3")),
    _quotas: (_api(48, "DescribeClientQuotas", "0-1"), _api(49, "AlterClientQuotas", "0-1")),
    _scram: (_api(50, "DescribeUserScramCredentials", "0"), _api(51, "AlterUserScramCredentials", "0")),
    _cluster: (_api(60, "DescribeCluster", "0-2"),),
    _topic_partitions: (_api(75, "DescribeTopicPartitions", "0"),),
    _log_directories: (_api(34, "AlterReplicaLogDirs", "0-2"), _api(35, "DescribeLogDirs", "0-5")),
    _leaders: (
        _api(43, "ElectLeaders", "0-2"), _api(45, "AlterPartitionReassignments", "0-1"), _api(46, "ListPartitionReassignments", "0"),
    ),
}  # fmt: skip
