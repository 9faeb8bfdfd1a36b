"""A broker of a cluster that comes back gets what the others have agreed on while it was away."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.support.waiting import PATIENCE_S
from txbroker.testing import Kafka

pytestmark = pytest.mark.process

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka(brokers=3) as running:
        yield running


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def aheads_ms(kafka: Kafka) -> list[int]:
    """By how much the clock of each broker is ahead."""
    brokers = get(f"{kafka.control_url}/v1/brokers")["brokers"]
    return [get(f"{each['control_url']}/v1/clock")["ahead_ms"] for each in brokers]


def test_a_scope_of_the_clock_that_has_ended_meanwhile(kafka: Kafka) -> None:
    with kafka.at(3 * DAY):
        kafka.broker(1).kill()
        kafka.broker(2).pause()
    kafka.broker(1).start()
    kafka.broker(2).resume()
    assert aheads_ms(kafka) == [0, 0, 0]
    with kafka.at(DAY):
        kafka.broker(1).kill()
    with kafka.at(2 * DAY):
        kafka.broker(1).start()
        assert aheads_ms(kafka) == [2 * 86_400_000] * 3, "it was in another scope"
        kafka.broker(1).kill()
    kafka.advance(4 * DAY)
    kafka.broker(1).start()
    assert aheads_ms(kafka) == [4 * 86_400_000] * 3


def test_an_isr_that_may_grow_again(kafka: Kafka) -> None:
    topic = kafka.create_topic("shrunk", replicas=3)
    kafka.move_leader(topic, 0, 0)
    kafka.shrink_isr(topic, 0, [0])
    kafka.broker(0).pause()
    kafka.reset()
    kafka.broker(0).resume()
    kafka.grow_isr(topic, 0)  # returns when all are in it
