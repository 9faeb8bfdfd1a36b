"""Controlled shutdown, the broker's part: when it asks the controller again, and when that would be useless."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from txbroker.broker.leaving import leave_cluster
from txbroker.cluster.image import ClusterImage
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse, RemainingPartition
from txbroker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

OWN, OTHER, THIRD = 1, 2, 3
EPOCH = 77
PAUSE_S = 5.0
Answer = Callable[[], Deferred[ControlledShutdownResponse]]


def done() -> Deferred[ControlledShutdownResponse]:
    return succeed(ControlledShutdownResponse(error_code=0, remaining_partitions=[]))


def left() -> Deferred[ControlledShutdownResponse]:
    partition = RemainingPartition(topic_name="t", partition_index=0)
    return succeed(ControlledShutdownResponse(error_code=0, remaining_partitions=[partition]))


def dying() -> Deferred[ControlledShutdownResponse]:
    return fail(BrokerError(ErrorCode.NETWORK_EXCEPTION, "connection lost"))


def new() -> Deferred[ControlledShutdownResponse]:
    return succeed(ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER, remaining_partitions=[]))


class Leaving:
    """Broker 1 stops; brokers 1 and 2 have replicas of its partition. The controller gives these answers, then the last one again."""

    def __init__(self, *answers: Answer, alive: tuple[int, ...] = (OWN, OTHER, THIRD)) -> None:
        self.clock = Clock()
        self.image = ClusterImage()
        self.live(*alive)
        self.answers = list(answers)
        self.asked: list[ControlledShutdownRequest] = []
        ended = leave_cluster(OWN, EPOCH, self._ask, self.image, BrokerConfig({}), self.clock)
        self.ended = Deferred.fromCoroutine(ended)

    def live(self, *brokers: int) -> None:
        state = UpdateMetadataPartitionState(
            partition_index=0, controller_epoch=1, leader=OWN, leader_epoch=0, isr=[OWN], zk_version=0, replicas=[OWN, OTHER],
            offline_replicas=[],
        )  # fmt: skip
        topic = UpdateMetadataTopicState(topic_name="t", topic_id=bytes(15) + b"t", partition_states=[state])
        live = [UpdateMetadataBroker(id=broker, endpoints=[], rack=None) for broker in brokers]
        self.image.apply(UpdateMetadataRequest(controller_id=THIRD, controller_epoch=1, topic_states=[topic], live_brokers=live))

    def _ask(self, request: ControlledShutdownRequest) -> Deferred[ControlledShutdownResponse]:
        self.asked.append(request)
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])()

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)


def test_a_dying_and_a_new_controller_are_asked_again_with_the_same_broker_epoch() -> None:
    """B13."""
    leaving = Leaving(dying, new, done)
    assert not leaving.ended.called
    leaving.wait(2 * PAUSE_S + 0.1)
    assert leaving.ended.called
    assert [request.broker_epoch for request in leaving.asked] == [EPOCH] * 3


def test_it_asks_three_times_while_another_broker_has_a_replica(caplog: pytest.LogCaptureFixture) -> None:
    leaving = Leaving(left)
    leaving.wait(PAUSE_S - 0.1)
    assert len(leaving.asked) == 1
    leaving.wait(PAUSE_S + 0.3)
    assert leaving.ended.called and len(leaving.asked) == 3
    assert "attempt 3 of 3" in caplog.text and "controlled shutdown has failed" in caplog.text


@pytest.mark.parametrize(
    ("alive", "answer"),
    [((OWN,), left), ((OWN,), dying), ((OWN, THIRD), left), ((OWN, THIRD), dying)],
    ids=["last broker", "last broker, no controller", "no other replica", "no other replica, no controller"],
)
def test_it_does_not_ask_again_if_no_live_broker_could_lead(alive: tuple[int, ...], answer: Answer) -> None:
    leaving = Leaving(answer, alive=alive)
    assert leaving.ended.called and len(leaving.asked) == 1


def test_a_pause_ends_when_the_other_brokers_have_stopped() -> None:
    leaving = Leaving(left)
    leaving.wait(1)
    leaving.live(OWN, THIRD)
    leaving.wait(0.2)
    assert leaving.ended.called and len(leaving.asked) == 1
