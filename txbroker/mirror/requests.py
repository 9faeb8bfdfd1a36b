"""The requests of a mirror, to either cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.client.client_errors import NotKafka, RequestFailed
from txbroker.client.topic_leaders import TopicLeaders
from txbroker.errors import ErrorCode
from txbroker.mirror.cluster import READ_UNCOMMITTED, Cluster
from txbroker.names import NULL_TOPIC_ID
from txbroker.wire.batch import Buffer
from txbroker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse
from txbroker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from txbroker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from txbroker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC = 2  # ConfigResource.Type
DYNAMIC_TOPIC_CONFIG = 1  # ConfigSource: set for the topic itself
SET, DELETE = 0, 1  # AlterConfigOp
TIMEOUT_MS = 30_000
ACKS_ALL = -1


class Wanted(NamedTuple):
    """A partition to fetch."""

    topic: TopicLeaders
    partition: int
    offset: int
    bytes_max: int


def fetch_request(wanted: Iterable[Wanted], isolation: int, wait_ms: int, bytes_max: int) -> FetchRequest:
    """A Fetch request without a session."""
    topics: dict[str, FetchTopic] = {}
    for topic, index, offset, partition_bytes in wanted:
        entry = topics.get(topic.name)
        if entry is None:
            entry = topics[topic.name] = FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[])
        entry.partitions.append(FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_bytes))
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=bytes_max, isolation_level=isolation, topics=list(topics.values())
    )


def fetched(response: FetchResponse) -> dict[tuple[str | bytes, int], PartitionData]:
    """The partitions of a Fetch response, by the topic's name or id."""
    return {
        (topic.topic or topic.topic_id, data.partition_index): data for topic in response.responses for data in topic.partitions
    }


def produced(response: ProduceResponse) -> dict[tuple[str | bytes, int], PartitionProduceResponse]:
    """The partitions of a Produce response, by the topic's name or id."""
    return {(topic.name or topic.topic_id, each.index): each for topic in response.responses for each in topic.partition_responses}


async def fetch(
    cluster: Cluster, topic: TopicLeaders, index: int, offset: int, bytes_max: int, isolation: int = READ_UNCOMMITTED
) -> PartitionData:
    """One partition from `offset` on, without waiting; ClientError."""
    leader = topic.by_partition.get(index)
    if leader is None:
        raise RequestFailed(f"{topic.name}-{index} of the {cluster.label}", ErrorCode.LEADER_NOT_AVAILABLE)
    request = fetch_request([Wanted(topic, index, offset, bytes_max)], isolation, 0, bytes_max)
    response: FetchResponse = await cluster.ask(request, leader.node_id)
    if response.error_code:
        raise RequestFailed(f"{topic.name}-{index} of the {cluster.label}", response.error_code)
    found = fetched(response)
    data = found.get((topic.name, index)) or found.get((topic.topic_id, index))
    if data is None:
        raise NotKafka(f"a Fetch response of the {cluster.label} does not have the requested partition")
    return data


def records_in(data: PartitionData) -> Buffer:
    """The batches of a Fetch response: a view of the response."""
    records: Any = data.records
    return records or b""


def produce_request(batches: Sequence[tuple[TopicLeaders, int, Buffer]]) -> ProduceRequest:
    """A Produce request with one batch a partition, acknowledged by all in-sync replicas."""
    topics: dict[str, TopicProduceData] = {}
    for topic, index, batch in batches:
        entry = topics.get(topic.name)
        if entry is None:
            entry = topics[topic.name] = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[])
        entry.partition_data.append(PartitionProduceData(index=index, records=batch))
    return ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=list(topics.values()))


async def new_producer_id(cluster: Cluster) -> int:
    """A producer id of this cluster, with epoch 0, without transactions; ClientError."""

    async def ask() -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
        response: InitProducerIdResponse = await cluster.ask(request)
        if response.error_code:
            raise RequestFailed(f"the {cluster.label} gives no producer id", response.error_code)
        return response.producer_id

    return await cluster.patiently(ask)


async def create_topic(cluster: Cluster, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str | None]) -> bytes:
    """Create a topic; its id. RequestFailed, but not if it exists (NULL_TOPIC_ID then). ClientError."""
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, assignments=[], configs=settings
    )
    response: CreateTopicsResponse = await cluster.ask_controller(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    for result in response.topics:
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return NULL_TOPIC_ID
        if result.error_code:
            raise RequestFailed(f"topic {name} cannot be created at the {cluster.label}", result.error_code, result.error_message)
        return result.topic_id or NULL_TOPIC_ID
    raise NotKafka("a CreateTopics response does not have the requested topic")


async def create_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Give a topic so many partitions; ClientError."""
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=False)
    response: CreatePartitionsResponse = await cluster.ask_controller(request)
    for result in response.results:
        if result.error_code:
            raise RequestFailed(f"partitions cannot be added to {name} at the {cluster.label}", result.error_code, result.error_message)


class TopicConfigs(NamedTuple):
    """A topic's configuration: every value, and the keys that are set for the topic itself."""

    values: Mapping[str, str | None]
    own: frozenset[str]


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicConfigs]:
    """The configurations of topics; ClientError."""
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names]
    response: DescribeConfigsResponse = await cluster.ask(DescribeConfigsRequest(resources=resources))
    found: dict[str, TopicConfigs] = {}
    for result in response.results:
        if result.error_code:
            what = f"the configuration of {result.resource_name} at the {cluster.label}"
            raise RequestFailed(what, result.error_code, result.error_message)
        own = frozenset(entry.name for entry in result.configs if entry.config_source == DYNAMIC_TOPIC_CONFIG)
        found[result.resource_name] = TopicConfigs({entry.name: entry.value for entry in result.configs}, own)
    return found


async def alter_topic(cluster: Cluster, name: str, key: str, value: str | None) -> None:
    """Set a key of a topic, or delete it (None); ClientError."""
    config = AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config])
    response: IncrementalAlterConfigsResponse = await cluster.ask_controller(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    )
    for result in response.responses:
        if result.error_code:
            raise RequestFailed(f"{key} of topic {name} at the {cluster.label}", result.error_code, result.error_message)
