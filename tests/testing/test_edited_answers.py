"""Edited answers: paths to fields, values in their forms, and what a client gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.support.waiting import PATIENCE_S
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_machine import ClientSettings
from txbroker.errors import ErrorCode
from txbroker.names import id_to_text
from txbroker.testing import Kafka, KitError
from txbroker.testing.edited_fields import apply_edits, parse_edits
from txbroker.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from txbroker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from txbroker.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

TOPIC_ID = bytes(range(16))


def metadata() -> MetadataResponse:
    def partitions() -> list[MetadataResponsePartition]:
        return [
            MetadataResponsePartition(error_code=0, partition_index=number, leader_id=1, leader_epoch=5, replica_nodes=[1], isr_nodes=[1])
            for number in range(2)
        ]

    topics = [MetadataResponseTopic(error_code=0, name=name, topic_id=TOPIC_ID, partitions=partitions()) for name in ("a.b", "c")]
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)], topics=topics)


def leaders(response: MetadataResponse) -> list[int]:
    return [partition.leader_id for topic in response.topics for partition in topic.partitions]


@pytest.mark.parametrize(("path", "expected"), [
    ("topics.partitions.leader_id", [-1, -1, -1, -1]),
    ("topics[name=a.b].partitions.leader_id", [-1, -1, 1, 1]),
    ("topics[1].partitions[partition_index=0].leader_id", [1, 1, -1, 1]),
    ("topics[5].partitions.leader_id", [1, 1, 1, 1]),
])  # fmt: skip
def test_a_path_leads_to_fields(path: str, expected: list[int]) -> None:
    response = metadata()
    assert apply_edits(response, 12, parse_edits(MetadataResponse, {path: -1})) is (-1 in expected)
    assert leaders(response) == expected


def test_values_have_the_form_of_their_field() -> None:
    response = metadata()
    broker = {"node_id": 7, "host": "elsewhere", "port": 9}
    edits: Mapping[str, Any] = {
        "topics[0].topic_id": id_to_text(bytes(16)), "topics[0].error_code": "UNKNOWN_TOPIC_ID", "topics.partitions.isr_nodes": [],
        "cluster_id": None, "brokers": [broker, {**broker, "rack": "r"}], "topics[1].is_internal": True,
    }  # fmt: skip
    assert apply_edits(response, 12, parse_edits(MetadataResponse, edits))
    first, second = response.topics
    assert (first.topic_id, first.error_code, second.is_internal) == (bytes(16), ErrorCode.UNKNOWN_TOPIC_ID, True)
    assert response.cluster_id is None and [(each.node_id, each.rack) for each in response.brokers] == [(7, None), (7, "r")]
    assert all(partition.isr_nodes == [] for topic in response.topics for partition in topic.partitions)
    members = JoinGroupResponse(
        error_code=0, generation_id=1, protocol_name="p", leader="l", member_id="m",
        members=[JoinGroupResponseMember(member_id="m", metadata=b"x")],
    )  # fmt: skip
    apply_edits(members, 7, parse_edits(JoinGroupResponse, {"members[member_id=m].metadata": "YQ=="}))
    assert members.members[0].metadata == b"a"


def test_a_default_that_messages_share_is_not_changed() -> None:
    def produced() -> ProduceResponse:
        partition = PartitionProduceResponse(index=0, error_code=6, base_offset=-1)
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])

    response, other = produced(), produced()
    edits = parse_edits(ProduceResponse, {"responses.partition_responses.current_leader.leader_id": 3})
    assert apply_edits(response, 10, edits) and not apply_edits(other, 9, edits), "version 9 has no such field"
    assert response.responses[0].partition_responses[0].current_leader.leader_id == 3
    assert other.responses[0].partition_responses[0].current_leader.leader_id == -1


@pytest.mark.parametrize(("edits", "problem"), [
    ({}, "edit has 0 paths; it must have from 1 to 100"),
    ({"topics..name": 1}, "the path 'topics..name' of edit cannot be read"),
    ({"topic.name": 1}, "MetadataResponse has no field 'topic' for edit; it has throttle_time_ms, brokers"),
    ({"cluster_id.name": 1}, "the path 'cluster_id.name' of edit leads through cluster_id, which has no fields"),
    ({"cluster_id[0]": 1}, "cluster_id in the path 'cluster_id\\[0\\]' of edit is no list"),
    ({"topics[nme=a].error_code": 1}, "the elements of topics have no field 'nme'"),
    ({"topics[0]": 1}, "the path 'topics\\[0\\]' of edit ends with an element of a list"),
    ({"controller_id": "1"}, "controller_id of edit is '1'; it must be a number"),
    ({"controller_id": 2**31}, "controller_id of edit is 2147483648; it must be a number"),
    ({"controller_id": True}, "controller_id of edit is True; it must be a number"),
    ({"topics.topic_id": "x"}, "topics.topic_id of edit is 'x'; it must be a topic id"),
    ({"topics": None}, "topics of edit is None; it must be a list"),
    ({"brokers": [{"node_id": 1}]}, "an element of brokers needs host, port"),
    ({"brokers": [{"id": 1}]}, "an element of brokers has no field 'id'; it has node_id, host, port, rack"),
])  # fmt: skip
def test_what_cannot_be_edited(edits: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(KitError, match=problem):
        parse_edits(MetadataResponse, edits)


@pytest.mark.process
def test_clients_get_edited_answers() -> None:
    with Kafka(topics={"t": 2}) as kafka, BlockingConnection("127.0.0.1", kafka.port, ClientSettings(client_id="one")) as client:
        partition = "topics[name=t].partitions[partition_index=1]"
        changes = {f"{partition}.leader_id": 99, f"{partition}.leader_epoch": 0, "brokers[0].rack": "r"}
        rule = kafka.when("Metadata", client_id="one").edit(changes)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        for leader, rack in ((99, "r"), (0, None)):
            answer: MetadataResponse = client.call(request)
            assert ([each.leader_id for each in answer.topics[0].partitions], answer.brokers[0].rack) == ([0, leader], rack)
        assert rule.hits == 1
        with kafka.when("Metadata", client_id="one").edit({"error_code": "UNKNOWN_SERVER_ERROR"}):
            assert client.call(request).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert kafka.journal.where(client_id="one", api="Metadata")[-1].errors == ("UNKNOWN_SERVER_ERROR",)

        no_leaders = {"topics.error_code": "LEADER_NOT_AVAILABLE", "topics.partitions": []}
        hidden = kafka.when("Metadata", client_id="two").times(3).edit(no_leaders)
        with KafkaProducer(**kafka.client_config("kafka-python"), client_id="two", retry_backoff_ms=10) as producer:
            assert producer.send("t", b"one", partition=0).get(PATIENCE_S).offset == 0
        assert hidden.hits == 3
        with pytest.raises(KitError, match="edit changes the fields of an answer: name the request"):
            kafka.when().edit({"error_code": 1})
        with pytest.raises(KitError, match="ProduceResponse has no field 'topics' for edit"):
            kafka.when("Produce").edit({"topics.error_code": 1})
