"""Records of KRaft's metadata log, `__cluster_metadata` (KIP-631), by their numbers."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Bytes, Data, Float64, Int8, Int16, Int32, Int64, String, Struct, Uint16, Uuid, v


class BrokerEndpoint(Struct):
    name: String
    host: String
    port: Uint16
    security_protocol: Int16


class BrokerFeature(Struct):
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterBrokerRecord(Data, versions="0-4", flexible="0+"):
    broker_id: Int32
    is_migrating_zk_broker: Bool = v("2+", default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: String | None
    fenced: Bool = v(default=True)
    in_controlled_shutdown: Bool = v("1+", default=False)
    log_dirs: list[Uuid] = v("3+", factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = v("4+", default=None, tag=1)


class UnregisterBrokerRecord(Data, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(Data, versions="0", flexible="0+"):
    name: String
    topic_id: Uuid


class PartitionRecord(Data, versions="0-2", flexible="0+"):
    partition_id: Int32 = v(default=-1)
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = v(default=-1)
    leader_recovery_state: Int8 = v(default=0, tag=0)
    leader_epoch: Int32 = v(default=-1)
    partition_epoch: Int32 = v(default=-1)
    directories: list[Uuid] = v("1+", factory=list)
    eligible_leader_replicas: list[Int32] | None = v("2+", default=None, tag=1)
    last_known_elr: list[Int32] | None = v("2+", default=None, tag=2)


class ConfigRecord(Data, versions="0", flexible="0+"):
    resource_type: Int8
    resource_name: String
    name: String
    value: String | None


class PartitionChangeRecord(Data, versions="0-2", flexible="0+"):
    partition_id: Int32 = v(default=-1)
    topic_id: Uuid
    isr: list[Int32] | None = v(default=None, tag=0)
    leader: Int32 = v(default=-2, tag=1)
    replicas: list[Int32] | None = v(default=None, tag=2)
    removing_replicas: list[Int32] | None = v(default=None, tag=3)
    adding_replicas: list[Int32] | None = v(default=None, tag=4)
    leader_recovery_state: Int8 = v(default=-1, tag=5)
    directories: list[Uuid] | None = v("1+", default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = v("2+", default=None, tag=6)
    last_known_elr: list[Int32] | None = v("2+", default=None, tag=7)


class FenceBrokerRecord(Data, versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(Data, versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class RemoveTopicRecord(Data, versions="0", flexible="0+"):
    topic_id: Uuid


class DelegationTokenRecord(Data, versions="0", flexible="0+"):
    owner: String
    requester: String
    renewers: list[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


class UserScramCredentialRecord(Data, versions="0", flexible="0+"):
    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


class FeatureLevelRecord(Data, versions="0", flexible="0+"):
    name: String
    feature_level: Int16


class EntityData(Struct):
    entity_type: String
    entity_name: String | None


class ClientQuotaRecord(Data, versions="0", flexible="0+"):
    entity: list[EntityData]
    key: String
    value: Float64
    remove: Bool


class ProducerIdsRecord(Data, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = v(default=-1)
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(Data, versions="0-3", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = v(default=0, tag=0)
    in_controlled_shutdown: Int8 = v("1+", default=0, tag=1)
    log_dirs: list[Uuid] = v("2+", factory=list, tag=2)
    cordoned_log_dirs: list[Uuid] | None = v("3+", default=None, tag=3)


class AccessControlEntryRecord(Data, versions="0", flexible="0+"):
    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class RemoveAccessControlEntryRecord(Data, versions="0", flexible="0+"):
    id: Uuid


class NoOpRecord(Data, versions="0", flexible="0+"):
    pass


class ZkMigrationStateRecord(Data, versions="0", flexible="0+"):
    zk_migration_state: Int8


class RemoveUserScramCredentialRecord(Data, versions="0", flexible="0+"):
    name: String
    mechanism: Int8


class BeginTransactionRecord(Data, versions="0", flexible="0+"):
    name: String | None = v(default=None, tag=0)


class EndTransactionRecord(Data, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(Data, versions="0", flexible="0+"):
    reason: String | None = v(default=None, tag=0)


class RemoveDelegationTokenRecord(Data, versions="0", flexible="0+"):
    token_id: String


class ControllerEndpoint(Struct):
    name: String
    host: String
    port: Uint16
    security_protocol: Int16


class ControllerFeature(Struct):
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterControllerRecord(Data, versions="0", flexible="0+"):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


class ClearElrRecord(Data, versions="0", flexible="0+"):
    topic_name: String
