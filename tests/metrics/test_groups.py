"""The metrics of groups: committed offsets and lag."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka.protocol.consumer import JoinGroupRequest, OffsetCommitRequest

from tests.metrics.scraping import ON, Scrape
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, find_coordinator
from tests.support.raw_log import batch, produce
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import until

MANAGER = "kafka_coordinator_group_groupmetadatamanager_"


@pytest.fixture
def watched(start_broker: Callable[..., Server]) -> Server:
    return start_broker(ON | {"group.max.size": "1", "offsets.topic.num.partitions": "3"})


def commit(connection: RawConnection, group: str, topic: str, partition: int, offset: int, metadata: str = "") -> int:
    topics = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topics.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
    request = OffsetCommitRequest(group_id=group, topics=[topics(name=topic, partitions=[part])])
    code: int = connection.call(request, 8).topics[0].partitions[0].error_code
    return code


def join(connection: RawConnection, group: str, member_id: str = "") -> tuple[int, str]:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")]
    request = JoinGroupRequest(group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member_id,
                               protocol_type="consumer", protocols=protocols)
    answer = connection.call(request, 3)
    return answer.error_code, answer.member_id


def test_offsets_and_lag(watched: Server) -> None:
    create_topic(watched, "t", 2)
    find_coordinator(watched, "g")
    with RawConnection(watched.address) as connection:
        for partition, count in ((0, 10), (1, 4)):
            produce(connection, "t", batch(numbered(count)), partition=partition)
        until(lambda: commit(connection, "g", "t", 0, 7) == 0, "the coordinator has loaded")
        assert commit(connection, "g", "t", 1, 4) == 0
    scrape = Scrape(watched)
    place = {"consumergroup": "g", "topic": "t"}
    assert [scrape("kafka_consumergroup_current_offset", **place, partition=n) for n in "01"] == [7, 4]
    assert [scrape("kafka_consumergroup_lag", **place, partition=n) for n in "01"] == [3, 0]
    assert scrape("kafka_consumergroup_lag_sum", **place) == 3
    assert scrape("kafka_consumergroup_current_offset_sum", **place) == 11
    assert scrape("kafka_consumergroup_members", consumergroup="g") == 0
    assert (scrape(f"{MANAGER}numgroups"), scrape(f"{MANAGER}numgroupsempty"), scrape(f"{MANAGER}numoffsets")) == (1, 1, 2)


def test_members_and_refused_members(watched: Server) -> None:
    create_topic(watched, "t")
    find_coordinator(watched, "g")
    with RawConnection(watched.address) as connection, RawConnection(watched.address) as other:
        until(lambda: commit(connection, "other", "t", 0, 1) == 0, "the coordinator has loaded")
        assert join(connection, "g")[0] == 0
        assert join(other, "g")[0] == 81
        assert commit(connection, "other", "t", 0, 2, "x" * 5000) == 12
        scrape = Scrape(watched)
    assert scrape("kafka_consumergroup_members", consumergroup="g") == 1
    assert scrape(f"{MANAGER}numgroupscompletingrebalance") == 1
    refused = scrape.by("txbroker_refusals_total", "reason")
    assert (refused["group_full"], refused["offset_metadata_too_large"]) == (1, 1)
    assert scrape("kafka_network_requestmetrics_errors_total", request="JoinGroup", error="GROUP_MAX_SIZE_REACHED") == 1
    assert scrape("kafka_network_requestmetrics_requests_total", request="JoinGroup", version="3") == 2
