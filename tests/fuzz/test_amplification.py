"""A small request gives no large response and keeps no memory, also when it repeats one name thousands of times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fuzz.inprocess import InProcessBroker
from tests.fuzz.memory import peak_growth, resident
from txbroker.wire.codec import encode_bytes
from txbroker.wire.compression import Codec
from txbroker.wire.decoders import ELEMENTS_MAX
from txbroker.wire.fieldkinds import Kind, Resolved, resolve
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from txbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from txbroker.wire.records import Record, build
from txbroker.wire.schema import Request, Struct

MIB = 1 << 20
WIDE, PARTITIONS = "wide", 200
GROUP = "crowded"
PRODUCERS = 200
REPEATED = 1000  # repetitions of a name in a request
ANSWER_BYTES_MAX = 3 * MIB
PEAK_BYTES_MAX = 48 * MIB
# The temporary memory and the response size of a request with the maximum number of elements.
FULL_PEAK_BYTES_MAX = 160 * MIB


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker with a topic of many partitions and producers, and a group with many offsets."""
    made = InProcessBroker()
    made.exchange([made.frame(CreateTopicsRequest(timeout_ms=5000, topics=[
        CreatableTopic(name=WIDE, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])]), 7)])
    for producer in range(PRODUCERS):
        records = build([Record(0, 1_700_000_000_000, b"key", b"value")], producer_id=producer, producer_epoch=0, base_sequence=0)
        data = TopicProduceData(name=WIDE, partition_data=[PartitionProduceData(index=0, records=records)])
        made.exchange([made.frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)], wait_s=0.01)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m" * 20_000)]
    (joined,) = made.exchange([made.frame(JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=1_000_000, rebalance_timeout_ms=10_000, member_id="", protocol_type="consumer",
        protocols=protocols), 3)])
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a" * 20_000)
    made.exchange([made.frame(SyncGroupRequest(
        group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]), 3)])
    offsets = [OffsetCommitRequestPartition(partition_index=i, committed_offset=1, committed_metadata="x" * 50) for i in range(PARTITIONS)]
    (committed,) = made.exchange([made.frame(OffsetCommitRequest(
        group_id=GROUP, member_id=joined.member_id, generation_id_or_member_epoch=joined.generation_id,
        topics=[OffsetCommitRequestTopic(name=WIDE, partitions=offsets)]), 6)])
    assert {partition.error_code for partition in committed.topics[0].partitions} == {0}
    yield made
    made.close()


def arrays(cls: type[Struct], version: int, before: tuple[Resolved, ...] = ()) -> Iterator[tuple[Resolved, ...]]:
    """The paths of all arrays in a message."""
    for field in resolve(cls):
        if field.carried(version) and field.kind.element is not None:
            yield (*before, field)
            if field.kind.element.struct is not None:
                yield from arrays(field.kind.element.struct, version, (*before, field))


def repeating(cls: type[Struct], version: int, path: tuple[Resolved, ...], count: int, *, empty: bool = False) -> Any:
    """A message whose array at `path` repeats one element `count` times; other arrays have one element or none."""
    values = {}
    for field in resolve(cls):
        if not field.carried(version):
            continue
        if path and field is path[0]:
            assert field.kind.element is not None
            if len(path) == 1:
                values[field.name] = [_known(field, field.kind.element, version, empty)] * count
            else:
                assert field.kind.element.struct is not None
                values[field.name] = [repeating(field.kind.element.struct, version, path[1:], count, empty=empty)]
        else:
            values[field.name] = _known(field, field.kind, version, empty)
    return cls(**values)


def _known(field: Resolved, kind: Kind, version: int, empty: bool) -> Any:
    if kind.struct is not None:
        return repeating(kind.struct, version, (), 0, empty=empty)
    if kind.element is not None:
        if empty:
            return []
        # Requests about all entities, or about all configuration keys of one.
        return None if field.nullable(version) else [_known(field, kind.element, version, empty)]
    if kind.name == "string":
        return GROUP if "group" in field.name else WIDE
    if kind.name in ("bytes", "records"):
        return b""
    if kind.name == "uuid":
        return bytes(16)
    if kind.name == "bool":
        return field.name != "allow_auto_topic_creation"
    if field.name == "resource_type":
        return 2
    return {"timestamp": -1, "timeout_ms": 100, "max_num_offsets": 1000}.get(field.name, 0)


def framed(cls: type[Request], version: int, message: Any) -> bytes:
    body = encode_bytes(message, version)
    return request_prefix(cls, version, 1, "small", len(body)) + body


def oldest_and_newest(broker: InProcessBroker) -> list[tuple[type[Request], int]]:
    ranges: dict[type[Request], list[int]] = {}
    for cls, version in broker.served.pairs:
        ranges.setdefault(cls, []).append(version)
    return [(cls, version) for cls, versions in ranges.items() for version in sorted({versions[0], versions[-1]})]


def test_repeated_names_give_a_short_response(broker: InProcessBroker) -> None:
    kept = resident()
    for cls, version in oldest_and_newest(broker):
        for path in arrays(cls, version):
            frame = framed(cls, version, repeating(cls, version, path, REPEATED))
            where = f"{cls.__name__} v{version} {'.'.join(field.name for field in path)}, {len(frame)} bytes"
            sent: list[bytes] = []
            growth = peak_growth(lambda frame=frame, sent=sent: sent.append(broker.send([frame])[0]))  # type: ignore[misc]
            assert len(sent[0]) < ANSWER_BYTES_MAX, f"{where}: {len(sent[0])} bytes of response"
            assert growth < PEAK_BYTES_MAX, f"{where}: {growth} bytes of memory"
    assert resident() - kept < PEAK_BYTES_MAX


@pytest.mark.parametrize(("cls_name", "version", "field"), [
    ("FetchRequest", 18, "topics"), ("ProduceRequest", 0, "topic_data"), ("MetadataRequest", 13, "topics"),
    ("DescribeGroupsRequest", 6, "groups"), ("DeleteTopicsRequest", 6, "topics"), ("DescribeConfigsRequest", 4, "resources"),
])
def test_a_request_with_the_maximum_number_of_elements(broker: InProcessBroker, cls_name: str, version: int, field: str) -> None:
    (cls,) = {cls for cls, _ in broker.served.pairs if cls.__name__ == cls_name}
    path = next(path for path in arrays(cls, version) if path[-1].name == field)
    frame = framed(cls, version, repeating(cls, version, path, ELEMENTS_MAX - 1, empty=True))
    assert peak_growth(lambda: broker.send([frame])) < FULL_PEAK_BYTES_MAX
    more = framed(cls, version, repeating(cls, version, path, ELEMENTS_MAX + 1, empty=True))
    closed: list[bool] = []
    assert peak_growth(lambda: closed.append(broker.send([more])[1])) < 2 * MIB + len(more)
    assert closed == [True]


def test_many_refused_records_give_a_short_response(broker: InProcessBroker) -> None:
    """Thousands of refused records in hundreds of partitions."""
    made = broker.exchange([broker.frame(CreateTopicsRequest(timeout_ms=5000, topics=[CreatableTopic(
        name="keyed", num_partitions=PARTITIONS, replication_factor=1, assignments=[],
        configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")])]), 7)])
    assert made[0].topics[0].error_code == 0
    records = build([Record(i, 1_700_000_000_000, None, b"") for i in range(2000)], codec=Codec.ZSTD)
    partitions = [PartitionProduceData(index=i, records=records) for i in range(PARTITIONS)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="keyed", partition_data=partitions)])
    frame = framed(ProduceRequest, 9, request)
    answers: list[bytes] = []
    assert peak_growth(lambda: answers.append(broker.send([frame])[0])) < PEAK_BYTES_MAX
    assert len(answers[0]) < ANSWER_BYTES_MAX

