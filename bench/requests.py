"""Requests as whole frames, encoded before a measurement begins, and a plain client for preparations and checks.

Versions are the newest that both Apache Kafka 4.3 and txbroker serve, as a current client chooses them; topics are named by id.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.headers import request_prefix, response_header_version
from txbroker.wire.messages.api_versions import ApiVersionsRequest
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from txbroker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from txbroker.wire.messages.describe_quorum import DescribeQuorumRequest
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from txbroker.wire.messages.heartbeat import HeartbeatRequest
from txbroker.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest
from txbroker.wire.messages.join_group import JoinGroupRequest
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from txbroker.wire.messages.offset_commit import OffsetCommitRequest
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.messages.sync_group import SyncGroupRequest
from txbroker.wire.records import Record, build
from txbroker.wire.schema import Request, response_class

CLIENT_ID = "bench"
VERSIONS: dict[type[Request], int] = {
    ApiVersionsRequest: 4,
    CreateTopicsRequest: 7,
    DeleteTopicsRequest: 6,
    DescribeQuorumRequest: 1,
    FetchRequest: 17,
    FindCoordinatorRequest: 6,
    HeartbeatRequest: 4,
    IncrementalAlterConfigsRequest: 1,
    InitProducerIdRequest: 5,
    JoinGroupRequest: 9,
    ListOffsetsRequest: 8,
    MetadataRequest: 13,
    OffsetCommitRequest: 9,
    ProduceRequest: 13,
    SyncGroupRequest: 5,
}
_SIZE = struct.Struct(">i")
LATEST = -1
_TOPIC_RESOURCE = 2


def frame(request: Request, correlation_id: int = 1, version: int | None = None) -> bytes:
    """A whole request: size, header and body."""
    version = VERSIONS[type(request)] if version is None else version
    body = encode_bytes(request, version)
    return request_prefix(type(request), version, correlation_id, CLIENT_ID, len(body)) + body


# In 2023: recent enough for every check, and the same in every run.
FIRST_TIMESTAMP = 1_700_000_000_000


def batch(records: int, value_bytes: int, timestamp: int = FIRST_TIMESTAMP) -> bytes:
    """An uncompressed record batch as a client sends it; timestamps are a millisecond apart."""
    value = random.Random(value_bytes).randbytes(value_bytes)
    return build([Record(offset, timestamp + offset, None, value, ()) for offset in range(records)])


def produce(topic_id: bytes, partition: int, records: bytes, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])])


def fetch(topic_id: bytes, partition: int, offset: int, bytes_max: int, max_wait_ms: int = 500) -> FetchRequest:
    """A fetch without a session, with min.bytes=1."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    topics = [FetchTopic(topic_id=topic_id, partitions=[wanted])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=50 << 20, topics=topics)


def offset_at(topic: str, timestamps: dict[int, int]) -> ListOffsetsRequest:
    """The first offset at or after a timestamp, by partition."""
    wanted = [ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition, timestamp in timestamps.items()]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])


def metadata(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


class Refused(Exception):
    """A broker answered with an error."""


class Cluster(NamedTuple):
    """Metadata: the addresses of the controller, and of the leader of each partition of a topic that has one."""

    controller: str
    leaders: Mapping[int, str]


class BrokerClient:
    """A blocking connection with one request in flight."""

    def __init__(self, address: str, *, timeout_s: float = 60.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()

    def call(self, request: Request) -> Any:
        """Send a request; its decoded response."""
        self.socket.sendall(frame(request))
        return self.answer(type(request))

    def answer(self, request: type[Request]) -> Any:
        """The next response on this connection, decoded as the response to `request`."""
        return decode_answer(request, self.receive())

    def receive(self) -> bytes:
        """The next response with its header, without its size."""
        (size,) = _SIZE.unpack(self._receive(_SIZE.size))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = self.socket.recv(size)
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed a connection")
            data += more
        return data

    def cluster(self, topic: str) -> Cluster:
        """The controller, and the leaders of a topic that may not exist."""
        found = self.call(metadata(topic))
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in found.brokers}
        leaders = {each.partition_index: each.leader_id for each in found.topics[0].partitions}
        return Cluster(addresses[found.controller_id], {number: addresses[leader] for number, leader in leaders.items() if leader >= 0})

    def versions(self) -> Any:
        return self.call(ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1"))

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> bytes:
        """Create a topic and write one record to each partition, so that it is fully set up; its id."""
        topic_id = self.new_topic(name, partitions, configs)
        for partition in range(partitions):
            self.until_written(topic_id, partition)
        return topic_id

    def new_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> bytes:
        """Create a topic, at the controller; its id."""
        config = [CreatableTopicConfig(name=key, value=value) for key, value in {"retention.ms": "-1", **(configs or {})}.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=config)
        (created,) = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
        _check(created.error_code, f"creating {name}")
        topic_id: bytes = created.topic_id
        return topic_id

    def until_written(self, topic_id: bytes, partition: int) -> None:
        """Write one record, as soon as this broker leads the partition."""
        while self._produced(topic_id, partition, batch(1, 1)) != 0:
            pass

    def fill(self, topic_id: bytes, partition: int, records: bytes, times: int) -> None:
        """Append the same batch many times."""
        request = frame(produce(topic_id, partition, records))
        step = max(1, min(100, (1 << 20) // len(request)))
        for first in range(0, times, step):
            count = min(step, times - first)
            self.socket.sendall(request * count)
            for _ in range(count):
                _check(_produce_error(self.answer(ProduceRequest)), "filling a topic")

    def append(self, topic_id: bytes, partition: int, batches: Iterable[bytes]) -> None:
        """Append batches in order, with several requests in flight."""
        waiting = 0
        for records in batches:
            self.socket.sendall(frame(produce(topic_id, partition, records)))
            waiting += 1
            if waiting == 32:
                _check(_produce_error(self.answer(ProduceRequest)), "appending to a topic")
                waiting -= 1
        for _ in range(waiting):
            _check(_produce_error(self.answer(ProduceRequest)), "appending to a topic")

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Set some of a topic's configs."""
        changes = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in configs.items()]
        resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configs=changes)
        (altered,) = self.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses
        _check(altered.error_code, f"altering {name}")

    def _produced(self, topic_id: bytes, partition: int, records: bytes) -> int:
        return _produce_error(self.call(produce(topic_id, partition, records)))

    def takes(self, topic_id: bytes, partition: int) -> bool:
        """Whether a partition accepts a record now."""
        return self._produced(topic_id, partition, batch(1, 1)) == 0

    def delete_topic(self, name: str) -> None:
        (deleted,) = self.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)).responses
        _check(deleted.error_code, f"deleting {name}")

    def end_offset(self, topic: str, partition: int) -> int:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        found = self.call(request).topics[0].partitions[0]
        _check(found.error_code, f"ListOffsets of {topic}")
        end: int = found.offset
        return end


def decode_answer(request: type[Request], answer: bytes) -> Any:
    """The decoded message of a response frame, which begins with its correlation id."""
    version = VERSIONS[request]
    return decode(response_class(request), version, answer[4 + response_header_version(request, version) :])


def is_whole(data: bytes) -> bool:
    """Whether `data` holds a whole response, size included."""
    return len(data) >= _SIZE.size and len(data) >= _SIZE.size + _SIZE.unpack_from(data)[0]


def check_fetched(answer: bytes) -> int:
    """The bytes of records in the response to a `fetch` request; Refused when there are none."""
    response = decode_answer(FetchRequest, answer)
    _check(response.error_code, "a fetch")
    data = response.responses[0].partitions[0]
    _check(data.error_code, "a fetch")
    if not data.records:
        raise Refused("a fetch response had no records")
    return len(data.records)


def _produce_error(response: Any) -> int:
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def _check(error_code: int, what: str) -> None:
    if error_code:
        raise Refused(f"{what} was answered with error {error_code}")
