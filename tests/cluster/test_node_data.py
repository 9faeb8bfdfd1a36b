"""The texts are those that Apache Kafka 3.9.1 wrote to ZooKeeper."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.cluster import node_data
from txbroker.cluster.node_data import (
    BrokerRegistration,
    MalformedNode,
    PartitionState,
    ProducerIdBlock,
    RegisteredEndpoint,
    ReplicaAssignment,
    TopicAssignment,
)
from txbroker.cluster.node_paths import Entity
from txbroker.names import NULL_TOPIC_ID, id_from_text

BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","REPL":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:12501",'
    b'"REPL://127.0.0.1:12521"],"jmx_port":-1,"port":12501,"host":"127.0.0.1","version":5,"timestamp":"1795241147690"}'
)
TOPIC = (
    b'{"partitions":{"0":[3,2,1],"1":[1,2]},"topic_id":"fbPM-RkOQOqWgBiwlRhyzw","adding_replicas":{"0":[3]},'
    b'"removing_replicas":{"0":[2,1]},"version":3}'
)


def test_a_broker_registration() -> None:
    registration = BrokerRegistration(
        (RegisteredEndpoint("PLAINTEXT", "127.0.0.1", 12501), RegisteredEndpoint("REPL", "127.0.0.1", 12521))
    )
    assert registration.encode(1795241147690) == BROKER
    assert node_data.decode_broker(BROKER) == registration


def test_a_broker_with_rack_tls_and_ipv6() -> None:
    registration = BrokerRegistration((RegisteredEndpoint("OUT", "::1", 9093, "SSL"), RegisteredEndpoint("ANY", "", 9092)), "r1")
    data = registration.encode(1)
    assert b'"endpoints":["OUT://[::1]:9093","ANY://:9092"],"rack":"r1","jmx_port":-1,"port":9092,"host":""' in data
    assert node_data.decode_broker(data) == registration
    only_tls = BrokerRegistration(registration.endpoints[:1])
    assert b'"port":-1,"host":null' in only_tls.encode(1)
    assert node_data.decode_broker(only_tls.encode(1)) == only_tls


def test_a_broker_from_before_listener_names() -> None:
    data = b'{"endpoints":["SSL://h:9093"],"jmx_port":-1,"port":-1,"host":"","version":2,"timestamp":"1"}'
    assert node_data.decode_broker(data) == BrokerRegistration((RegisteredEndpoint("SSL", "h", 9093, "SSL"),))


def test_a_topic() -> None:
    topic = TopicAssignment(
        id_from_text("fbPM-RkOQOqWgBiwlRhyzw"),
        {1: ReplicaAssignment((1, 2)), 0: ReplicaAssignment((3, 2, 1), adding=(3,), removing=(2, 1))},
    )
    assert topic.encode() == TOPIC
    assert node_data.decode_topic(TOPIC) == topic
    assert node_data.decode_topic(b'{"partitions":{"0":[1]},"version":1}') == TopicAssignment(
        NULL_TOPIC_ID, {0: ReplicaAssignment((1,))}
    )


def test_a_partition_state() -> None:
    text = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1]}'
    state = PartitionState(leader=2, leader_epoch=0, isr=(2, 1), controller_epoch=1, partition_epoch=7)
    assert state.encode() == text
    assert node_data.decode_state(text, 7) == state
    with_epochs = text[:-1] + b',"txbroker_isr_epochs":[5,4294967298]}'
    assert state.encode((5, 4294967298)) == with_epochs
    assert node_data.decode_state_and_epochs(with_epochs, 7) == (state, (5, 4294967298))
    assert node_data.decode_state_and_epochs(text, 7) == (state, ())
    by_hand = with_epochs.replace(b"[2,1]", b"[2]")
    assert node_data.decode_state_and_epochs(by_hand, 7) == (replace(state, isr=(2,)), ())
    unclean = b'{"controller_epoch":1,"leader":2,"version":1,"leader_recovery_state":1,"leader_epoch":3,"isr":[2]}'
    assert node_data.decode_state(unclean, 0).encode() == unclean
    assert node_data.decode_state(unclean, 0).recovering


@pytest.mark.parametrize(
    ("decode", "encode", "text"),
    [
        (node_data.decode_cluster_id, node_data.encode_cluster_id, b'{"version":"1","id":"iMJVUqxdSi21QcxkALkdmQ"}'),
        (node_data.decode_controller_epoch, node_data.encode_controller_epoch, b"12"),
        (
            node_data.decode_config,
            node_data.encode_config,
            b'{"version":1,"config":{"cleanup.policy":"delete","retention.ms":"3600000"}}',
        ),
        (node_data.decode_config_change, node_data.encode_config_change, b'{"version":2,"entity_path":"brokers/<default>"}'),
        (
            node_data.decode_producer_id_block,
            ProducerIdBlock.encode,
            b'{"version":1,"broker":2,"block_start":"0","block_end":"999"}',
        ),
        (node_data.decode_log_dir_event, node_data.encode_log_dir_event, b'{"version":1,"broker":3,"event":1}'),
    ],
)
def test_what_kafka_wrote_is_what_is_written(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], text: bytes) -> None:
    assert encode(decode(text)) == text


def test_features_and_old_config_changes() -> None:
    assert node_data.FEATURES == b'{"features":{},"version":2,"status":1}'
    assert node_data.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == Entity("topics", "t")


DECODERS: list[Callable[[bytes | None], object]] = [
    node_data.decode_cluster_id,
    node_data.decode_broker,
    node_data.decode_controller_epoch,
    node_data.decode_topic,
    lambda data: node_data.decode_state_and_epochs(data, 0),
    node_data.decode_config,
    node_data.decode_config_change,
    node_data.decode_producer_id_block,
    node_data.decode_log_dir_event,
]
STATE = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1],"txbroker_isr_epochs":[7,5]}'
SAMPLES = [BROKER, TOPIC, STATE, b'{"version":1,"config":{"a":"b"}}']


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("data", [None, b"", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"partitions":{"0":["a"]},"config":1}'])
def test_nonsense_is_a_malformed_node(decode: Callable[[bytes | None], object], data: bytes | None) -> None:
    with pytest.raises(MalformedNode):
        decode(data)


@given(sample=st.sampled_from(SAMPLES), at=st.integers(0, 300), byte=st.integers(0, 255), decode=st.sampled_from(DECODERS))
def test_a_changed_byte_gives_a_value_or_a_malformed_node(
    sample: bytes, at: int, byte: int, decode: Callable[[bytes | None], object]
) -> None:
    changed = bytearray(sample)
    changed[at % len(sample)] = byte
    with contextlib.suppress(MalformedNode):
        decode(bytes(changed))
