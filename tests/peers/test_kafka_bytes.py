"""Requests between brokers of Apache Kafka 3.9.1 in ZooKeeper mode, as captured: they are read and written as Kafka does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cache import CHECKOUT
from txbroker.api.controller_requests import LeaderAndIsrHandler, StopReplicaHandler, UpdateMetadataHandler
from txbroker.api.controller_services import AllocateProducerIdsHandler, AlterPartitionHandler, ControlledShutdownHandler
from txbroker.cluster.controller.controller_context import ControllerContext, LiveBroker
from txbroker.cluster.controller.request_batch import ControllerRequest, Controlling, RequestBatch
from txbroker.cluster.controller_request_checks import check_values
from txbroker.cluster.node_data import BrokerRegistration, PartitionState, RegisteredEndpoint, ReplicaAssignment, TopicAssignment
from txbroker.config.listeners import PROTOCOLS
from txbroker.names import TopicPartition, id_from_text
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.headers import read_client_id, request_header_version, response_body_position, response_header_version
from txbroker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from txbroker.wire.messages.api_versions import ApiVersionsRequest
from txbroker.wire.messages.fetch import FetchRequest
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from txbroker.wire.messages.list_offsets import ListOffsetsRequest
from txbroker.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from txbroker.wire.messages.stop_replica import StopReplicaRequest
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest
from txbroker.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from txbroker.wire.schema import Message, Request, Struct, response_class

GOLDEN: Path = CHECKOUT / "tests" / "golden" / "inter_broker" / "kafka-3.9.1.jsonl"
CAPTURED: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
FOR_CLUSTERS: tuple[Any, ...] = (
    LeaderAndIsrHandler, StopReplicaHandler, UpdateMetadataHandler,
    AlterPartitionHandler, ControlledShutdownHandler, AllocateProducerIdsHandler,
)  # fmt: skip
REQUESTS: dict[str, type[Request]] = {
    request.__name__.removesuffix("Request"): request
    for request in (
        *(handler.request for handler in FOR_CLUSTERS),
        FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest, ApiVersionsRequest, AddPartitionsToTxnRequest,
        WriteTxnMarkersRequest,
    )
}  # fmt: skip


def received(line: dict[str, Any]) -> Request:
    """The request, decoded to its last byte."""
    kind = REQUESTS[line["api"]]
    frame = memoryview(bytes.fromhex(line["request_hex"]))
    client_id, position = read_client_id(frame, request_header_version(kind, line["api_version"]))
    assert client_id == line["client_id"]
    return decode(kind, line["api_version"], frame[position:])


def values(message: Any) -> Any:
    """A message as Kafka's JSON has it: names of fields in lower case without separators, ids as text."""
    if isinstance(message, list):
        return [values(item) for item in message]
    if isinstance(message, bytes):
        return message
    if not isinstance(message, Struct):
        return message
    return {name.replace("_", ""): values(getattr(message, name)) for name in message.__annotations__}


def expected(value: Any, key: str = "") -> Any:
    if isinstance(value, list):
        return [expected(item) for item in value]
    if isinstance(value, dict):
        return {name.lower(): expected(item, name) for name, item in value.items()}
    return id_from_text(value) if key == "TopicId" else value


def assert_has(found: Any, wanted: Any) -> None:
    """All that `wanted` names is in `found`."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            assert_has(found[name], value)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_has(one, other)
    else:
        assert found == wanted


@pytest.mark.parametrize(
    "line", [line for line in CAPTURED if "request_hex" in line], ids=lambda line: f"{line['api']}-{line['trigger'][:30]}"
)
def test_a_request_is_read_and_written_as_kafka_does(line: dict[str, Any]) -> None:
    request = received(line)
    body = bytes.fromhex(line["request_hex"])[-len(encode_bytes(request, line["api_version"])) :]
    assert encode_bytes(request, line["api_version"]) == body
    if "request" in line:
        assert_has(values(request), expected(line["request"]))
    if "response_hex" in line:
        frame = memoryview(bytes.fromhex(line["response_hex"]))
        position = response_body_position(frame, response_header_version(type(request), line["api_version"]))
        response: Message = decode(response_class(type(request)), line["api_version"], frame[position:])
        if not re.search("fake", line["to"]):
            parts = encode_bytes(response, line["api_version"]) if line["api"] != "Fetch" else bytes(frame[position:])
            assert parts == bytes(frame[position:])


def test_the_handlers_of_a_cluster_serve_every_captured_version() -> None:
    served = {handler.request: getattr(handler, "versions", handler.request.versions) for handler in FOR_CLUSTERS}
    seen = set()
    for line in CAPTURED:
        kind = REQUESTS[line["api"]]
        if kind in served:
            seen.add(kind)
            assert line["api_version"] in served[kind], line["trigger"]
    assert seen == served.keys()


def controllers(api: str) -> list[dict[str, Any]]:
    """What Kafka's controllers sent; a broker that was played by a script was the controller once."""
    return [line for line in CAPTURED if line["api"] == api and "fake" not in line["from"]]


def test_what_kafka_sends_passes_the_checks_of_values() -> None:
    checked = [received(line) for api in ("LeaderAndIsr", "UpdateMetadata", "StopReplica") for line in controllers(api)]
    assert len(checked) > 30
    for request in checked:
        assert isinstance(request, LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest)
        check_values(request)


class Situation:
    """The controller's knowledge when Kafka's controller sent a request, from that request."""

    def __init__(self, line: dict[str, Any], request: Any) -> None:
        self.context = ControllerContext()
        self.broker = int(line["to"].split()[1])
        for live in getattr(request, "live_brokers", ()):
            endpoints = tuple(RegisteredEndpoint(e.listener, e.host, e.port, list(PROTOCOLS)[e.security_protocol]) for e in live.endpoints)
            self._add(live.id, request, endpoints, live.rack)
        for leader in getattr(request, "live_leaders", ()):
            self._add(leader.broker_id, request, (RegisteredEndpoint("REPL", leader.host_name, leader.port),))
        if self.broker not in self.context.brokers:
            self._add(self.broker, request, (RegisteredEndpoint("REPL", "not.a.leader", 1),))
        self.batch = RequestBatch(Controlling(request.controller_id, request.controller_epoch, "REPL"), self.context)

    def _add(self, broker: int, request: Any, endpoints: tuple[RegisteredEndpoint, ...], rack: str | None = None) -> None:
        epoch = request.broker_epoch if broker == self.broker else 1
        self.context.brokers[broker] = LiveBroker(epoch, BrokerRegistration(endpoints, rack=rack))

    def topic(self, name: str, topic_id: bytes) -> TopicAssignment:
        return self.context.topics.setdefault(name, TopicAssignment(topic_id=topic_id, partitions={}))

    def partition(self, topic: Any, state: Any, partition_epoch: int) -> TopicPartition:
        adding, removing = tuple(getattr(state, "adding_replicas", ())), tuple(getattr(state, "removing_replicas", ()))
        known: Any = self.topic(topic.topic_name, topic.topic_id).partitions
        known[state.partition_index] = ReplicaAssignment(tuple(state.replicas), adding, removing)
        topic_partition = TopicPartition(topic.topic_name, state.partition_index)
        self.context.states[topic_partition] = PartitionState(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=tuple(state.isr),
            controller_epoch=state.controller_epoch,
            partition_epoch=partition_epoch,
            recovering=bool(getattr(state, "leader_recovery_state", 0)),
        )
        return topic_partition

    def sent(self, kind: type[ControllerRequest]) -> ControllerRequest:
        (request,) = [request for broker, request in self.batch.requests() if broker == self.broker and isinstance(request, kind)]
        return request


def by_leader(request: Any) -> Any:
    """Kafka lists live leaders in no order."""
    request.live_leaders.sort(key=lambda leader: leader.broker_id)
    return request


def test_leader_and_isr_has_kafkas_bytes() -> None:
    compared = 0
    for line in controllers("LeaderAndIsr"):
        request: Any = received(line)
        situation = Situation(line, request)
        for topic in request.topic_states:
            for state in topic.partition_states:
                found = situation.partition(topic, state, state.partition_epoch)
                situation.batch.roles([situation.broker], found, is_new=state.is_new)
        sent = by_leader(situation.sent(LeaderAndIsrRequest))
        assert encode_bytes(sent, 7) == encode_bytes(by_leader(request), 7), line["trigger"]
        compared += 1
    assert compared == 11


def test_update_metadata_has_kafkas_bytes() -> None:
    compared = 0
    for line in controllers("UpdateMetadata"):
        request: Any = received(line)
        situation = Situation(line, request)
        deleting = False
        partitions = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partitions.append(situation.partition(topic, state, state.zk_version))
                if state.leader == -2:
                    deleting = True
                    situation.context.deleting.add(topic.topic_name)
                for replica in state.offline_replicas:
                    if replica in situation.context.brokers:
                        situation.context.shutting_down.add(replica)
        if deleting:
            for state in situation.context.states.values():
                assert (state.leader, state.leader_epoch) == (-2, 0)
        situation.batch.metadata([situation.broker], partitions)
        sent: Any = situation.sent(UpdateMetadataRequest)
        # Kafka lists live brokers in no order.
        for each in (sent, request):
            each.live_brokers.sort(key=lambda live: live.id)
        assert encode_bytes(sent, 8) == encode_bytes(request, 8), line["trigger"]
        compared += 1
    assert compared == 13


def test_stop_replica_has_kafkas_bytes() -> None:
    compared = 0
    for line in controllers("StopReplica"):
        request: Any = received(line)
        situation = Situation(line, request)
        for topic in request.topic_states:
            known: Any = situation.topic(topic.topic_name, bytes(16)).partitions
            for state in topic.partition_states:
                found = TopicPartition(topic.topic_name, state.partition_index)
                known[state.partition_index] = ReplicaAssignment((situation.broker,), (), ())
                if state.leader_epoch == -2:
                    situation.context.deleting.add(topic.topic_name)
                else:
                    situation.context.states[found] = PartitionState(
                        leader=9, leader_epoch=state.leader_epoch, isr=(9,), controller_epoch=1
                    )
                situation.batch.stop(situation.broker, found, delete=state.delete_partition)
        assert encode_bytes(situation.sent(StopReplicaRequest), 4) == encode_bytes(request, 4), line["trigger"]
        compared += 1
    assert compared == 10
