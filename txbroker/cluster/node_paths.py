"""The paths of the metadata tree's nodes: Kafka's paths in ZooKeeper mode."""

from __future__ import annotations

from typing import NamedTuple

from txbroker.names import TopicPartition

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"  # its version is the next generated broker id
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
FEATURE = "/feature"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"  # a request of old tools to the controller, as is the next one
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
TOKENS = "/delegation_token/tokens"  # delegation tokens, each by its id
ACL_ROOTS = ("/kafka-acl", "/kafka-acl-extended/prefixed")  # of literal patterns, and of prefixes; below are types, below these names
# Of txbroker: Kafka and its tools do not know them.
REFUSALS = "/txbroker_refused_connections"
SHARED_SECRET = "/txbroker_secret"
OWN_NODES = (REFUSALS, SHARED_SECRET)

# The nodes that every broker creates at its start, as Kafka does; parents before children.
STRUCTURE = (
    "/consumers",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    "/config",
    CONFIG_CHANGES,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/admin",
    DELETE_TOPICS,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/cluster",
)


class Entity(NamedTuple):
    """An entity with a configuration: `Entity("topics", "t1")`, `Entity("brokers", "1")`."""

    type: str
    name: str

    @property
    def path(self) -> str:
        """The node that holds its configuration."""
        return f"/config/{self.type}/{self.name}"

    @property
    def entity_path(self) -> str:
        """Its name in config change nodes."""
        return f"{self.type}/{self.name}"


DEFAULT_NAME = "<default>"
TOPIC_TYPE = "topics"
BROKER_TYPE = "brokers"
CLIENT_TYPE = "clients"  # client ids; those of one user are below it: `/config/users/U/clients/C`
USER_TYPE = "users"
IP_TYPE = "ips"  # addresses of clients
QUOTA_TYPES = (CLIENT_TYPE, USER_TYPE, IP_TYPE)  # what client quotas are configured for
ALL_BROKERS = Entity(BROKER_TYPE, DEFAULT_NAME)


def topic_entity(name: str) -> Entity:
    """The configuration of one topic."""
    return Entity(TOPIC_TYPE, name)


def broker_entity(broker_id: int) -> Entity:
    """The dynamic configuration of one broker."""
    return Entity(BROKER_TYPE, str(broker_id))


def broker(broker_id: int) -> str:
    """A broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's id and assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(topic_partition: TopicPartition) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}"


def state(topic_partition: TopicPartition) -> str:
    """A partition's leader and in-sync replicas."""
    return f"{partition(topic_partition)}/state"


def deletion(name: str) -> str:
    """The request to the controller to delete a topic."""
    return f"{DELETE_TOPICS}/{name}"


def refusal(name: str) -> str:
    """A report of refused connections."""
    return f"{REFUSALS}/{name}"
