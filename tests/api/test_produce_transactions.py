"""Without transactions, no transactional batch is appended: nothing would end its transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.produce import ProduceHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Appended
from txbroker.purgatory import Purgatory
from txbroker.wire import legacy
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from txbroker.wire.records import Record, build

RECORDS = [Record(0, 1000, b"k", b"v")]


class Leader:
    """Replicas with one partition, which accepts every batch."""

    def __init__(self) -> None:
        self.appended: list[bytes] = []
        self.is_leader = True
        self.topic_partition = None
        self.log = SimpleNamespace(config=LogConfig())

    def get(self, topic: str, partition: int) -> Leader:
        return self

    def find(self, topic: str, partition: int) -> None:
        return None

    def append(self, records: memoryview, *_: object, **__: object) -> Appended:
        self.appended.append(bytes(records))
        return Appended(0, 0, -1, 0)

    def acknowledged(self, *_: object, **__: object) -> bool:
        return True


def produced(leader: Leader, *batches: bytes, version: int = 9, **options: Any) -> list[int]:
    """The partitions' error codes."""
    unused = cast("CurrentLeaders", None), cast("Purgatory", None)
    handler = ProduceHandler(cast("Replicas", leader), *unused, lambda: 1000, lambda: 1.0)
    session = Session(peer_host="a", peer_port=1, local_host="b", local_port=2, listener="PLAINTEXT", number=1)
    context = RequestContext(0, version, 1, "test", session)
    data = [PartitionProduceData(index=index, records=memoryview(bytearray(records))) for index, records in enumerate(batches)]
    topics = [TopicProduceData(name="t", partition_data=data)]
    request = ProduceRequest(**{"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": topics} | options)
    try:
        answer = handler(request, context)
    except BrokerError as error:
        answer = handler.failed(request, context, error)
    assert isinstance(answer, ProduceResponse)
    return [partition.error_code for partition in answer.responses[0].partition_responses]


def test_transactional_batches_are_refused() -> None:
    leader = Leader()
    plain = build(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0)
    transactional = build(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    assert produced(leader, transactional, plain) == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]
    assert leader.appended == [plain]


def test_a_request_with_a_transactional_id_is_refused() -> None:
    leader = Leader()
    plain = build(RECORDS)
    assert produced(leader, plain, plain, transactional_id="t") == [ErrorCode.INVALID_TXN_STATE] * 2
    assert leader.appended == []


@pytest.mark.parametrize("value", [b"\x10" * 10, b""])
def test_old_messages_are_never_transactional(value: bytes) -> None:
    old = legacy.build([Record(0x1010101010, 0x10101010101010, b"k", value)], magic=1)
    assert produced(Leader(), old, version=2) == [ErrorCode.NONE]
