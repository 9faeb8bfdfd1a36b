"""The ISR changes of leaders on their way to the controller: batched, one request in flight, repeated, voided by newer states."""

from __future__ import annotations

import logging

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from tests.cluster.test_partition import LAG_S, OTHER, OWN, THIRD, Moves
from tests.log.support import NOW, batch, open_log
from tests.support.fakes.disk_path import DiskPath
from txbroker.cluster.followers import IsrProposal
from txbroker.cluster.isr_requests import DEFECT_RETRY_S, RETRY_S, IsrRequests
from txbroker.cluster.local_replica import Leadership
from txbroker.cluster.partition import Partition
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataResult,
    TopicDataResult,
)

BROKER_EPOCH = 77


class Leaders(Moves):
    """Partitions of broker 1, their requests to the controller, and the answers that the test gives."""

    def __init__(self, path: DiskPath) -> None:
        super().__init__()
        self.clock = Clock()
        self.sent: list[tuple[AlterPartitionRequest, Deferred[AlterPartitionResponse]]] = []
        self.requests = IsrRequests(OWN, self.clock)
        self.requests.begin(BROKER_EPOCH, self._send)
        self.partitions = [self._leader(path / f"p{index}", index) for index in range(3)]

    def _leader(self, path: DiskPath, index: int) -> Partition:
        log = open_log(path)
        log.topic_partition = log.topic_partition._replace(partition=index)
        partition = Partition(OWN, log, self, self.flush, self.replication)
        partition.lead(Leadership(OWN, 4, (OWN, OTHER), (OWN, OTHER, THIRD), 0))
        partition.append(batch(b"a"), NOW)
        return partition

    def isr_proposed(self, partition: Partition, proposal: IsrProposal) -> None:
        super().isr_proposed(partition, proposal)
        self.requests.propose(partition, proposal)

    def _send(self, request: AlterPartitionRequest) -> Deferred[AlterPartitionResponse]:
        version = AlterPartitionRequest.versions.high
        received = decode(AlterPartitionRequest, version, encode_bytes(request, version))
        self.sent.append((received, Deferred()))
        return self.sent[-1][1]

    def lag(self, *indexes: int) -> None:
        self.now_s += LAG_S + 1
        for index in indexes:
            self.partitions[index].check_followers()
        self.clock.advance(0)

    def asked(self) -> list[int]:
        """The partitions of the last request."""
        return [partition.partition_index for topic in self.sent[-1][0].topics for partition in topic.partitions]

    def answer(self, codes: dict[int, ErrorCode], partition_epoch: int = 1) -> None:
        request, done = self.sent[-1]
        results = [
            PartitionDataResult(partition_index=index, error_code=code, leader_id=OWN, leader_epoch=4, isr=[OWN],
                                partition_epoch=partition_epoch)
            for index, code in codes.items()
        ]  # fmt: skip
        topics = [TopicDataResult(topic_name=request.topics[0].topic_name, partitions=results)]
        done.callback(AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics))
        self.clock.advance(0)

    def isrs(self) -> list[tuple[int, ...]]:
        return [partition.state.isr for partition in self.partitions]


@pytest.fixture
def leaders(directory: DiskPath) -> Leaders:
    return Leaders(directory)


def test_proposals_of_a_turn_share_a_request_and_later_ones_wait(leaders: Leaders) -> None:
    leaders.lag(0, 1)
    assert leaders.asked() == [0, 1]
    request = leaders.sent[0][0]
    assert (request.broker_id, request.broker_epoch) == (OWN, BROKER_EPOCH)
    first = request.topics[0].partitions[0]
    isr = [member.broker_id for member in first.new_isr_with_epochs]
    assert (first.leader_epoch, first.partition_epoch, isr) == (4, 0, [OWN])
    leaders.lag(2)
    assert len(leaders.sent) == 1, "one request in flight"
    leaders.answer({0: ErrorCode.NONE, 1: ErrorCode.NONE})
    assert leaders.isrs() == [(OWN,), (OWN,), (OWN, OTHER)] and leaders.asked() == [2]
    leaders.answer({2: ErrorCode.NONE})
    assert leaders.isrs()[2] == (OWN,) and len(leaders.sent) == 2


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_other_errors_are_repeated(leaders: Leaders, code: ErrorCode) -> None:
    leaders.lag(0, 1)
    leaders.answer({0: ErrorCode.NONE, 1: code})
    assert len(leaders.sent) == 1
    leaders.clock.advance(RETRY_S)
    assert leaders.asked() == [1]


def test_a_request_without_an_answer_is_repeated(leaders: Leaders, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    leaders.lag(0)
    leaders.sent[0][1].errback(BrokerError(ErrorCode.NOT_CONTROLLER))
    leaders.clock.advance(RETRY_S)
    assert len(leaders.sent) == 2 and leaders.asked() == [0]
    leaders.sent[1][1].callback(AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[]))
    leaders.clock.advance(RETRY_S)
    assert len(leaders.sent) == 3
    leaders.answer({})
    leaders.clock.advance(RETRY_S)
    assert len(leaders.sent) == 4, "an answer without the partition"
    assert caplog.text.count("sent again") == 1


def test_a_superseded_proposal_waits_for_the_controllers_request(leaders: Leaders) -> None:
    leaders.lag(0)
    leaders.answer({0: ErrorCode.INVALID_UPDATE_VERSION})
    leaders.clock.advance(60)
    assert len(leaders.sent) == 1
    partition = leaders.partitions[0]
    partition.check_followers()
    assert len(leaders.proposals) == 1, "both sets count until then"
    partition.lead(Leadership(OWN, 4, (OWN, OTHER), (OWN, OTHER, THIRD), 5))
    leaders.lag(0)
    assert leaders.sent[-1][0].topics[0].partitions[0].partition_epoch == 5


def test_a_refused_proposal_is_withdrawn(leaders: Leaders) -> None:
    leaders.lag(0)
    leaders.answer({0: ErrorCode.INELIGIBLE_REPLICA})
    assert leaders.isrs()[0] == (OWN, OTHER)
    leaders.lag(0)
    assert len(leaders.sent) == 2, "it may be proposed again"


def test_a_newer_state_voids_what_waits_and_what_is_under_way(leaders: Leaders) -> None:
    leaders.lag(0)
    leaders.lag(1)
    for index in (0, 1):
        leaders.partitions[index].lead(Leadership(OWN, 4, (OWN, THIRD), (OWN, OTHER, THIRD), 3))
    leaders.answer({0: ErrorCode.NONE})
    assert leaders.isrs()[:2] == [(OWN, THIRD), (OWN, THIRD)]
    assert len(leaders.sent) == 1, "partition 1 has nothing to propose any more"
    leaders.lag(2)
    assert leaders.asked() == [2]


def test_nothing_is_sent_after_the_stop(leaders: Leaders) -> None:
    leaders.lag(0)
    leaders.requests.stop()
    leaders.sent[0][1].errback(BrokerError(ErrorCode.NOT_CONTROLLER))
    leaders.clock.advance(60)
    assert len(leaders.sent) == 1


def test_a_send_that_fails_at_once(leaders: Leaders) -> None:
    leaders.requests.begin(BROKER_EPOCH, lambda request: fail(BrokerError(ErrorCode.NOT_CONTROLLER)))
    leaders.lag(0)
    leaders.requests.begin(BROKER_EPOCH, leaders._send)
    leaders.clock.advance(RETRY_S)
    assert leaders.asked() == [0]


def test_a_response_that_cannot_be_applied_is_requested_again(
    leaders: Leaders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leaders.lag(0)

    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "isr_confirmed", broken)
        leaders.answer({0: ErrorCode.NONE})
    assert "a response to AlterPartition could not be applied" in caplog.text
    leaders.clock.advance(DEFECT_RETRY_S)
    leaders.answer({0: ErrorCode.NONE})
    assert leaders.isrs()[0] == (OWN,)


def test_a_request_that_cannot_be_made_is_made_later(tmp_path: DiskPath, monkeypatch: pytest.MonkeyPatch) -> None:
    leaders = Leaders(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(leaders.requests, "_request", lambda sent: {}["a defect"])
        leaders.lag(0)
        assert leaders.sent == []
    leaders.clock.advance(DEFECT_RETRY_S)
    leaders.answer({0: ErrorCode.NONE})
    assert leaders.isrs()[0] == (OWN,)
