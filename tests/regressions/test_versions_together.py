"""Clients of different ages on one broker: what one version wrote, every version reads; a group is led through in each."""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from kafka.record import MemoryRecordsBuilder

from tests.support.raw import RawConnection
from tests.support.raw_admin import advertised, create_topic, find_coordinator
from tests.support.raw_log import batch, fetch_request, fetched, produce_request, topic_id
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import until

PRODUCE, FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 0, 1, 11, 12, 13, 14
MEMBER_ID_REQUIRED = 79


def test_what_any_version_wrote_every_version_reads(broker: Server, name: str) -> None:
    """Produce below 3 carries message sets of the old formats, Fetch below 4 asks for them: the broker converts."""
    create_topic(broker, name)
    offered = advertised(broker)
    # Kafka 4 offers Produce 0 to 2 only so that librdkafka compresses, and refuses them.
    lowest = 3 if broker.kind == "kafka" else offered[PRODUCE][0]
    written = 0
    with RawConnection(broker.address) as connection:
        known = topic_id(connection, name)
        for version in range(lowest, offered[PRODUCE][1] + 1):
            data = batch(numbered(2)) if version >= 3 else message_set(magic=0 if version < 2 else 1)
            request = produce_request(name, data, acks=1, topic_id=known)
            answer = connection.call(request, version).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, written)
            written += 2
        for version in range(offered[FETCH][0], offered[FETCH][1] + 1):
            found = fetched(connection.call(fetch_request(name, 0, topic_id=known), version))
            assert [record.offset for record in found.records] == list(range(written))
            assert [record.value for record in found.records] == [record.value for record in numbered(2)] * (written // 2)


def message_set(magic: int) -> bytes:
    """Two records in the formats before batches."""
    builder = MemoryRecordsBuilder(magic, 0, 1 << 20)
    for record in numbered(2):
        builder.append(record.timestamp, record.key, record.value)
    builder.close()
    return bytes(builder.buffer())


def test_a_group_in_every_version(broker: Server, name: str) -> None:
    """Join, sync, heartbeat and leave, each in every version of its own."""
    find_coordinator(broker, name)
    offered = advertised(broker)
    with RawConnection(broker.address) as connection:

        def call(request: Any, version: int) -> Any:
            return connection.call(request, min(version, offered[request.API_KEY][1]))

        until(lambda: call(DescribeGroupsRequest(groups=[name]), 0).groups[0].error_code == 0, "the coordinator has loaded")
        for version in range(offered[JOIN_GROUP][0], offered[JOIN_GROUP][1] + 1):
            joined = call(join(name), version)
            if joined.error_code == MEMBER_ID_REQUIRED:
                joined = call(join(name, joined.member_id), version)
            assert (joined.error_code, joined.leader) == (0, joined.member_id)
            me = {"group_id": name, "member_id": joined.member_id}
            assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
            synced = call(SyncGroupRequest(**me, generation_id=joined.generation_id, protocol_type="consumer", protocol_name="range",
                                           assignments=[assignment]), version)
            assert (synced.error_code, synced.assignment) == (0, b"all")
            assert call(HeartbeatRequest(**me, generation_id=joined.generation_id), version).error_code == 0
            identity = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id, group_instance_id=None)
            left = call(LeaveGroupRequest(**me, members=[identity]), version)
            assert {left.error_code, *(member.error_code for member in left.members)} == {0}


def join(group: str, member_id: str = "") -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"any")
    return JoinGroupRequest(group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member_id,
                            protocol_type="consumer", protocols=[protocol])
