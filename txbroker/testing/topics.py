"""Creating, compacting, expiring and deleting topics, and deleting groups, with txbroker's own client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from txbroker.client.blocking_connection import BlockingConnection, connect_to_any, connect_to_broker
from txbroker.client.client_errors import RequestFailed
from txbroker.client.client_machine import ClientSettings
from txbroker.client.config_requests import TOPIC_RESOURCE
from txbroker.client.coordinator_connection import CoordinatorConnection, KeyType
from txbroker.client.topic_leaders import Broker, TopicLeaders
from txbroker.client.topic_metadata import TopicMetadata
from txbroker.client.topic_reader import READ_COMMITTED, TopicReader
from txbroker.errors import ErrorCode
from txbroker.testing.errors import KitError
from txbroker.testing.settings import setting_text
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse
from txbroker.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from txbroker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from txbroker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from txbroker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

TIMEOUT_MS = 30_000
RETRY_S = 0.05
SET = 0  # AlterConfigOp.OpType
NAMES_VERSION = 6  # of DeleteTopics, from which on topics have a name or an id


class Administration:
    """Requests to the controller and to coordinators; ClientError from each method."""

    def __init__(self, addresses: Sequence[tuple[str, int]], settings: ClientSettings) -> None:
        self._addresses = addresses
        self._settings = settings

    def create_topic(self, name: str, partitions: int, replicas: int, configs: Mapping[str, object]) -> None:
        """Create a topic, and return when all its partitions have leaders."""
        entries = [CreatableTopicConfig(name=key, value=setting_text(value)) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=entries)
        with self._controller() as controller:
            answer: CreateTopicsResponse = controller.call(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        (found,) = answer.topics
        if found.error_code:
            raise RequestFailed(f"topic {name} was not created", found.error_code, found.error_message)
        metadata = TopicMetadata(self._addresses, name, self._settings, RETRY_S, create=False)
        try:
            metadata.retry(lambda: _until_known(metadata), f"topic {name} cannot be used")
        finally:
            metadata.close()

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics; those that do not exist are ignored."""
        names = list(names)
        if not names:
            return
        with self._controller() as controller:
            by_name = (controller.version_of(DeleteTopicsRequest) or 0) < NAMES_VERSION
            states = [] if by_name else [DeleteTopicState(name=name) for name in names]
            request = DeleteTopicsRequest(topics=states, topic_names=names if by_name else [], timeout_ms=TIMEOUT_MS)
            answer: DeleteTopicsResponse = controller.call(request)
        for found in answer.responses:
            if found.error_code and found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise RequestFailed(f"topic {found.name} was not deleted", found.error_code, found.error_message)

    def compact(self, name: str) -> None:
        """Compact a topic, and return when that is done."""
        self._operate(name, "txbroker.compact", "roll")

    def expire(self, name: str) -> None:
        """Delete the records of a topic that retention allows to delete, and return when that is done."""
        self._operate(name, "txbroker.expire", "now")

    def _operate(self, name: str, key: str, value: str) -> None:
        """Alter a key of a topic that is an operation of txbroker: each broker performs it on the partitions that it leads."""
        config = AlterableConfig(name=key, config_operation=SET, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        metadata = TopicMetadata(self._addresses, name, self._settings, RETRY_S, create=False)
        try:
            leaders = metadata.leaders().by_partition.values()
        finally:
            metadata.close()
        for leader in sorted({each for each in leaders if each is not None}):
            with connect_to_broker(leader, self._settings) as connection:
                answer: IncrementalAlterConfigsResponse = connection.call(request)
            (found,) = answer.responses
            if found.error_code:
                raise RequestFailed(f"{key}={value} of topic {name} failed", found.error_code, found.error_message)

    def delete_records(self, name: str, partition: int, before: int) -> int:
        """Delete the records before an offset; the new first offset."""
        selected = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)])
        request = DeleteRecordsRequest(topics=[selected], timeout_ms=TIMEOUT_MS)
        reader = TopicReader(self._addresses, name, self._settings, READ_COMMITTED)

        def ask(leader: BlockingConnection) -> tuple[int, int]:
            answer: DeleteRecordsResponse = leader.call(request)
            (found,) = answer.topics[0].partitions
            return found.error_code, found.low_watermark

        try:
            if partition not in reader.partitions:
                raise KitError(f"topic {name} has no partition {partition}; its partitions are {', '.join(map(str, reader.partitions))}")
            return reader.ask_leader(partition, ask, f"has no offset {before} to delete the records before it")
        finally:
            reader.close()

    def delete_group(self, name: str) -> bool:
        """Delete a group; False if it has members, which prevents it. A group that does not exist is ignored."""
        coordinator = CoordinatorConnection(self._addresses, KeyType.GROUP, name, self._settings, RETRY_S)

        def ask(connection: BlockingConnection) -> tuple[int, bool]:
            answer: DeleteGroupsResponse = connection.call(DeleteGroupsRequest(groups_names=[name]))
            code = answer.results[0].error_code
            if code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP):
                return 0, code == ErrorCode.GROUP_ID_NOT_FOUND
            return code, True

        try:
            return coordinator.ask(ask, f"group {name} was not deleted")
        finally:
            coordinator.close()

    def _controller(self) -> BlockingConnection:
        connection = connect_to_any(self._addresses, self._settings)
        try:
            metadata: MetadataResponse = connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        except BaseException:
            connection.close()
            raise
        if len(metadata.brokers) <= 1:
            return connection
        connection.close()
        found = next((one for one in metadata.brokers if one.node_id == metadata.controller_id), metadata.brokers[0])
        return connect_to_broker(Broker(found.node_id, found.host, found.port), self._settings)


def _until_known(metadata: TopicMetadata) -> int | TopicLeaders:
    """A retriable error until each partition has a leader. A broker may not know a topic yet that another one has just created."""
    found = metadata.refresh()
    return found if found is not None and found.complete else int(ErrorCode.LEADER_NOT_AVAILABLE)
