"""A broker of a cluster that comes back gets what the others have agreed on while it was away."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.support.waiting import PATIENCE_S
from txbroker.testing import Kafka
from txbroker.testing.brokers import ClusterMember

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
    kafka.broker(2).resume()  # first: it may be the controller, by which the others know of a start
    kafka.broker(1).start()
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


@pytest.mark.extended
def test_rules_are_asked_for_while_a_broker_comes_and_goes(kafka: Kafka) -> None:
    broker, rules = kafka.broker(2), [kafka.when("Produce").optional().disconnect()]
    with ThreadPoolExecutor(1) as pool:
        changes = pool.submit(lambda: [act() for act in (broker.kill, broker.start, broker.pause, broker.resume) * 2])
        while not changes.done():
            assert [rule.hits for rule in rules] == [0] * len(rules)
            rules.append(kafka.when("Produce").optional().disconnect())
            rules.pop(0).remove()
        changes.result()
    kafka.end_rules()


def test_an_isr_that_may_grow_again(kafka: Kafka) -> None:
    topic = kafka.create_topic("shrunk", replicas=3)
    kafka.move_leader(topic, 0, 0)
    kafka.shrink_isr(topic, 0, [0])
    kafka.broker(0).pause()
    kafka.reset()
    kafka.broker(0).resume()
    kafka.grow_isr(topic, 0)  # returns when all are in it


def test_a_broker_that_starts_has_no_control_port_yet(kafka: Kafka) -> None:
    kafka.broker(1).kill()
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(kafka.broker(1).start)
        while not started.done():
            shown = get(f"{kafka.control_url}/v1/brokers")["brokers"][1]
            assert shown["state"] == "stopped" or not shown["control_url"] or get(f"{shown['control_url']}/v1/brokers")
        started.result()
    assert get(f"{kafka.control_url}/v1/brokers")["brokers"][1]["control_url"]


def test_a_reset_has_all_brokers_take_connections(kafka: Kafka) -> None:
    for id_ in (1, 2):
        kafka.broker(id_).refuse()
    kafka.broker(2).pause()
    kafka.reset()
    kafka.broker(2).resume()
    assert [each.state for each in kafka.brokers] == ["running"] * 3
    kafka.broker(1).refuse()
    kafka.broker(1).pause()
    kafka.broker(1).resume()
    own = [get(f"{each['control_url']}/v1/brokers")["brokers"][0]["state"] for each in get(f"{kafka.control_url}/v1/brokers")["brokers"]]
    assert own == ["running", "refusing", "running"]
    kafka.broker(1).accept()


def test_a_broker_that_hangs_is_killed(kafka: Kafka) -> None:
    member = kafka.broker(1)
    assert isinstance(member, ClusterMember)
    os.kill(member.pid, signal.SIGSTOP)
    member.kill()
    assert member.state == "stopped"
    member.start()
    assert member.state == "running"


def test_the_ends_of_all_partitions_that_were_filled(kafka: Kafka) -> None:
    topic = kafka.create_topic("filled", 3)
    for partition in range(3):
        kafka.move_leader(topic, partition, partition)
    request = urllib.request.Request(
        f"{kafka.control_url}/v1/fill", json.dumps({"topic": topic, "count": 7}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert json.load(answer)["ends"] == {"0": 3, "1": 2, "2": 2}
