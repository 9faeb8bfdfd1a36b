"""Lengths below and above the largest one-byte varint, in messages with tagged fields with and without defaults."""

from __future__ import annotations

import pytest

from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, NodeEndpoint, PartitionData
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponsePartition
from txbroker.wire.messages.metadata import MetadataResponseTopic as Topic

BORDERS = (0, 1, 125, 126, 127, 128, 300)


@pytest.mark.parametrize("length", BORDERS)
@pytest.mark.parametrize("version", [8, 12])
def test_strings_and_arrays_of_any_length(version: int, length: int) -> None:
    partition = MetadataResponsePartition(
        error_code=1, partition_index=2, leader_id=3, replica_nodes=list(range(length)), isr_nodes=[1], offline_replicas=[]
    )
    for topic in (Topic(error_code=0, name="n" * length, partitions=[]), Topic(error_code=0, name="n", partitions=[partition] * 2)):
        sent = MetadataResponse(brokers=[], topics=[topic, topic], cluster_id="c" * length)
        assert decode(MetadataResponse, version, encode_bytes(sent, version)) == sent
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * length)
    assert decode(MetadataRequest, version, encode_bytes(request, version)) == request


@pytest.mark.parametrize("length", BORDERS)
@pytest.mark.parametrize("diverging", [False, True])
@pytest.mark.parametrize("nodes", [0, 1, 127])
def test_records_of_any_length_among_tagged_fields(length: int, diverging: bool, nodes: int) -> None:
    data = PartitionData(partition_index=1, error_code=0, high_watermark=5, records=b"r" * length)
    if diverging:
        data.diverging_epoch = EpochEndOffset(epoch=3, end_offset=4)
    node = NodeEndpoint(node_id=1, host="h", port=2, rack="r")
    sent = FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=[data, data])], node_endpoints=[node] * nodes)
    assert decode(FetchResponse, 16, encode_bytes(sent, 16)) == sent
