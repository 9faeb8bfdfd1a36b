"""Answers that a function of the test changes: what it gets, what clients get, and that no client waits for ever."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaProducer

from tests.support.waiting import PATIENCE_S, until
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_machine import ClientSettings
from txbroker.testing import ClientError, EditError, Kafka, KitError, Namespace, Rule
from txbroker.testing.edit_function import EditFunction
from txbroker.testing.edited_values import value_problem
from txbroker.testing.rule_specs import parse_rule
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from txbroker.wire.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse, ProduceResponse, TopicProduceResponse

RACK = "edited"
DEAF = """
import os, sys, time
from txbroker.testing import Kafka

kafka = Kafka.connect(sys.argv[1], sys.argv[2])
kafka.when("Metadata", client_id=sys.argv[3]).edit(lambda answer: os._exit(3))
print("added", flush=True)
time.sleep(3600)
"""


def metadata(**changes: Any) -> MetadataResponse:
    topic = MetadataResponseTopic(error_code=0, name="t", topic_id=bytes(16), partitions=[])
    values = {"brokers": [MetadataResponseBroker(node_id=1, host="h", port=1)], "topics": [topic], **changes}
    return MetadataResponse(**values)


def topic(**changes: Any) -> list[MetadataResponseTopic]:
    return [MetadataResponseTopic(**{"error_code": 0, "name": "t", "partitions": [], **changes})]


@pytest.mark.parametrize(("message", "version", "problem"), [
    (metadata(), 12, ""),
    (metadata(cluster_id=None), 12, ""),
    (metadata(controller_id=2**31), 12, "controller_id is 2147483648; it must be a number that fits into int32"),
    (metadata(controller_id=True), 12, "controller_id is True; it must be a number that fits into int32"),
    (metadata(brokers=None), 12, "brokers is None; it must be a list"),
    (metadata(topics=topic(name=5)), 12, "topics[0].name is 5; it must be text or None"),
    (metadata(topics=topic(name=None)), 11, "topics[0].name is None; it must be text"),
    (metadata(topics=topic(topic_id=b"x")), 12, "topics[0].topic_id is b'x'; it must be 16 bytes"),
    (metadata(topics=topic(is_internal=1)), 12, "topics[0].is_internal is 1; it must be True or False"),
    (metadata(topics=topic(partitions=[7])), 12, "topics[0].partitions[0] is 7; it must be a MetadataResponsePartition"),
    (metadata(error_code=5), 12, "error_code is 5, and version 12 has no such field"),
    (metadata(topics=topic(topic_id=bytes(16))), 0, ""),
])  # fmt: skip
def test_values_that_cannot_be_encoded(message: MetadataResponse, version: int, problem: str) -> None:
    assert value_problem(message, version) == problem
    if not problem:
        assert encode_bytes(message, version)


def test_a_function_changes_no_default_that_messages_share() -> None:
    def change(response: ProduceResponse) -> None:
        response.responses[0].partition_responses[0].current_leader.leader_id = 3

    partition = PartitionProduceResponse(index=0, error_code=6, base_offset=-1)
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    edited, problem = EditFunction(change, "r", 1.0).run("Produce", 10, encode_bytes(response, 10))
    assert edited is not None and problem == ""
    assert decode(ProduceResponse, 10, edited).responses[0].partition_responses[0].current_leader.leader_id == 3
    assert LeaderIdAndEpoch().leader_id == partition.current_leader.leader_id == -1


@contextmanager
def connected(kafka: Kafka, client_id: str) -> Iterator[Callable[[], str | None]]:
    """A call of Metadata on a connection of its own: the rack in its answer, or "" if the broker has ended."""
    with BlockingConnection("127.0.0.1", kafka.port, ClientSettings(client_id=client_id)) as client:
        answer: Callable[[], MetadataResponse] = lambda: client.call(MetadataRequest(topics=[]))  # noqa: E731
        yield lambda: answer().brokers[0].rack


def set_rack(response: MetadataResponse) -> None:
    response.brokers[0].rack = RACK


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "txbroker-edit"]


@pytest.mark.process
def test_what_a_client_gets(kafka: Kafka, names: Namespace) -> None:
    client_id = names.client_id()
    with connected(kafka, client_id) as rack:
        first = kafka.when("Metadata", client_id=client_id).edit(set_rack)
        other = kafka.when("Metadata", client_id=client_id).after(first).on_call(2).edit(lambda answer: metadata(topics=answer.topics))
        assert [rack() for _ in range(4)] == [RACK, None, None, None]
        assert (first.hits, other.hits, threads()) == (1, 1, ["txbroker-edit"])
        first.remove()
        assert (rack(), threads()) == (None, ["txbroker-edit"])
        other.remove()
        until(lambda: not threads(), "the end of the thread of functions")
        with kafka.when("Metadata", client_id=client_id).times(2).edit(set_rack) as again:
            assert [rack(), rack(), rack()] == [RACK, RACK, None] and again.hits == 2
    kafka.end_rules()


@pytest.mark.process
def test_an_answer_of_a_megabyte(kafka: Kafka, names: Namespace) -> None:
    client_id = names.client_id()

    def longer(response: MetadataResponse) -> None:
        response.brokers = [MetadataResponseBroker(node_id=number, host="h" * 100, port=1) for number in range(10_000)]

    rule = kafka.when("Metadata", client_id=client_id).edit(longer)
    with BlockingConnection("127.0.0.1", kafka.port, ClientSettings(client_id=client_id)) as client:
        assert [broker.node_id for broker in client.call(MetadataRequest(topics=[])).brokers] == list(range(10_000))
    assert rule.hits == 1
    assert kafka.journal.where(client_id=client_id, api="Metadata")[-1].bytes > 1_000_000
    kafka.end_rules()


@pytest.mark.process
def test_clients_of_other_libraries(kafka: Kafka, names: Namespace) -> None:
    """A producer gets no leader three times; a consumer first gets answers without records."""
    topic, client_id = names.topic(), names.client_id()
    seen: list[int] = []

    def without_leaders(response: Any) -> None:
        for partition in response.topics[0].partitions:
            partition.leader_id, partition.error_code = -1, 5

    def without_records(response: Any) -> None:
        for partition in (each for found in response.responses for each in found.partitions):
            seen.append(len(partition.records or b""))
            partition.records = b""

    hidden = kafka.when("Metadata", topic=topic).times(3).edit(without_leaders)
    with KafkaProducer(**kafka.client_config("kafka-python"), retry_backoff_ms=10) as producer:
        assert producer.send(topic, b"one").get(PATIENCE_S).offset == 0
    assert hidden.hits == 3
    emptied = kafka.when("Fetch", topic=topic).times(2).edit(without_records)
    consumer = Consumer({**kafka.client_config("confluent", names.group()), "client.id": client_id})
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, timeout=PATIENCE_S)
    consumer.close()
    assert (message.value(), emptied.hits) == (b"one", 2) and len(seen) == 2 and seen[0] == seen[1] > 0
    assert not any(entry.problem for entry in kafka.journal.where(topic=topic))


def fails(response: MetadataResponse) -> None:
    raise ValueError("wrong\nanswer")


def fails_the_test(response: MetadataResponse) -> None:
    pytest.fail("wrong answer")


@pytest.mark.process
@pytest.mark.parametrize(("function", "problem"), [
    (fails, r"the function raised ValueError: wrong answer \(test_edit_functions.py:\d+\)"),
    (fails_the_test, r"the function raised Failed: wrong answer \(test_edit_functions.py:\d+\)"),
    (lambda answer: answer.topic, r"the function raised AttributeError: 'MetadataResponse' object has no attribute 'topic' \(.*\)"),
    (lambda answer: answer.brokers, r"the function returned \[.*\]; it must be a MetadataResponse, or None for the one that it got"),
    (lambda answer: metadata(controller_id="1"), "the answer cannot be encoded: controller_id is '1'; it must be a number .*"),
    (lambda answer: metadata(cluster_id="\ud800"), "the answer cannot be encoded: UnicodeEncodeError: .*"),
])  # fmt: skip
def test_a_function_that_fails(kafka: Kafka, names: Namespace, function: Callable[[Any], Any], problem: str) -> None:
    """The client gets the original answer, and the test gets the exception, once."""
    client_id = names.client_id()
    rule = kafka.when("Metadata", client_id=client_id).times(2).edit(function)
    message = rf"the rule Metadata\(client_id='{client_id}'\) times\(2\): edit has not edited an answer: {problem}$"
    with connected(kafka, client_id) as rack:
        assert (rack(), rack()) == (None, None)
        with pytest.raises(EditError, match=message) as raised:
            assert rule.hits
        assert (raised.value.__cause__ is not None) == ("raised" in problem or "Unicode" in problem)
        assert rule.hits == 2
    (*_, entry) = kafka.journal.where(client_id=client_id, api="Metadata")
    assert entry.rule == rule.number and message.endswith(problem + "$") and entry.problem in str(raised.value)
    assert f"(rule {rule.number}) not edited: {entry.problem}" in entry.text()
    kafka.end_rules()


@pytest.mark.process
def test_errors_of_functions_are_raised_at_the_end(kafka: Kafka, names: Namespace) -> None:
    client_id = names.client_id()
    with connected(kafka, client_id) as rack:
        kafka.when("Metadata", client_id=client_id).edit(fails)
        assert rack() is None
        with pytest.raises(EditError, match="ValueError: wrong answer"):
            kafka.end_rules()
        kafka.end_rules()
        with pytest.raises(EditError, match="ValueError: wrong answer"), kafka.when("Metadata", client_id=client_id).edit(fails):
            assert rack() is None
        removed = kafka.when("Metadata", client_id=client_id).edit(fails)
        assert rack() is None
        removed.remove()
        with pytest.raises(EditError, match="ValueError: wrong answer"):
            kafka.end_rules()
        kafka.when("Metadata", client_id=client_id).edit(fails)
        assert rack() is None
        kafka.end_rules(check=False)
        kafka.end_rules()


class Parked:
    """A function that waits, and a client that waits for its answer."""

    def __init__(self, kafka: Kafka, client_id: str) -> None:
        self.racks: list[str | None] = []
        self._reached = threading.Event()
        self._may_return = threading.Event()
        self._kafka = kafka
        self._client_id = client_id
        self._thread = threading.Thread(target=self._call)

    def function(self, response: MetadataResponse) -> None:
        self._reached.set()
        assert self._may_return.wait(PATIENCE_S)
        set_rack(response)

    def _call(self) -> None:
        try:
            with connected(self._kafka, self._client_id) as rack:
                self.racks.append(rack())
        except ClientError:
            self.racks.append("closed")

    def begin(self) -> None:
        self._thread.start()

    def __enter__(self) -> Parked:
        self.begin()
        assert self._reached.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.answered()
        self._may_return.set()

    def answered(self) -> str | None:
        """What the client has got, while the function still waits."""
        self._thread.join(PATIENCE_S)
        (rack,) = self.racks
        return rack


def error_of(rule: Rule) -> str:
    try:
        assert rule.hits
    except EditError as error:
        return str(error)
    return ""


@pytest.mark.process
def test_a_function_that_does_not_return(kafka: Kafka, names: Namespace) -> None:
    client_id = names.client_id()
    parked = Parked(kafka, client_id)
    rule = kafka.when("Metadata", client_id=client_id).edit(parked.function, timeout_s=0.2)
    message = "the function has not returned within 0.2 s; functions run one after the other"
    parked.begin()
    assert parked.answered() is None
    assert message in until(lambda: error_of(rule), "the error")
    assert rule.hits == 1
    parked.__exit__()
    (entry,) = kafka.journal.where(client_id=client_id, api="Metadata")
    assert entry.problem == "no answer within 0.2 s"
    kafka.end_rules()
    parked = Parked(kafka, client_id)
    rule = kafka.when("Metadata", client_id=client_id).edit(parked.function, timeout_s=0.2)
    parked.begin()
    parked.__exit__()
    assert message in until(lambda: error_of(rule), "the error of a function that has returned")
    kafka.end_rules()


@pytest.mark.process
def test_a_rule_that_is_removed_while_an_answer_waits(kafka: Kafka, names: Namespace) -> None:
    client_id = names.client_id()
    parked = Parked(kafka, client_id)
    rule = kafka.when("Metadata", client_id=client_id).edit(parked.function, timeout_s=600)
    with parked:
        rule.remove()
        assert parked.answered() is None
    assert rule.hits == 1
    assert kafka.journal.where(client_id=client_id)[-1].problem == "the rule was removed meanwhile"
    kafka.end_rules()


@pytest.mark.process
def test_a_connected_kafka_that_is_closed_while_an_answer_waits(kafka: Kafka, names: Namespace) -> None:
    client_id = names.client_id()
    other = Kafka.connect(kafka.bootstrap_servers, kafka.control_url)
    parked = Parked(kafka, client_id)
    rule = other.when("Metadata", client_id=client_id).always().edit(parked.function, timeout_s=600)
    with parked:
        other.close()
        with connected(kafka, client_id) as rack:
            assert rack() is None, "no process serves the function"
        rule.remove()
    assert "the process of the test" in kafka.journal.where(client_id=client_id, api="Metadata")[-1].problem


@pytest.mark.process
def test_a_process_of_a_test_that_ends_while_an_answer_waits(kafka: Kafka, names: Namespace) -> None:
    client_id = names.client_id()
    command = [sys.executable, "-c", DEAF, kafka.bootstrap_servers, kafka.control_url, client_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, connected(kafka, client_id) as rack:
        assert process.stdout is not None and process.stdout.readline() == "added\n"
        assert (rack(), process.wait(PATIENCE_S)) == (None, 3)
    assert "the process of the test has ended" in kafka.journal.where(client_id=client_id, api="Metadata")[-1].problem


@pytest.mark.process
@pytest.mark.parametrize("end", [Kafka.stop, Kafka.kill, Kafka.close])
def test_a_broker_that_ends_while_an_answer_waits(end: Callable[[Kafka], None]) -> None:
    with Kafka() as kafka:
        kafka.when("Metadata", client_id="two").edit(fails)
        with connected(kafka, "two") as rack:
            assert rack() is None
        parked = Parked(kafka, "one")
        kafka.when("Metadata", client_id="one").edit(parked.function, timeout_s=600)
        with parked:
            end(kafka)
            assert parked.answered() in (None, "closed")
        until(lambda: not threads(), "the end of the thread of functions")
        with pytest.raises(EditError, match="ValueError: wrong answer"):
            kafka.end_rules()


@pytest.mark.process
def test_many_answers_on_two_connections(kafka: Kafka, names: Namespace) -> None:
    numbers = iter(range(200))
    found: list[str | None] = []
    client_id = names.client_id()

    def count(response: MetadataResponse) -> None:
        response.brokers[0].rack = str(next(numbers))

    def call() -> None:
        with connected(kafka, client_id) as rack:
            found.extend([rack() for _ in range(100)])

    rule = kafka.when("Metadata", client_id=client_id).always().edit(count)
    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE_S)
    assert sorted(map(int, filter(None, found))) == list(range(200)) and rule.hits == 200
    kafka.end_rules()


@pytest.mark.process
def test_what_is_no_function(kafka: Kafka) -> None:
    with pytest.raises(KitError, match=r"edit\(\): changes is 5; it must be a mapping of text to anything or a function"):
        kafka.when("Metadata").edit(5)  # type: ignore[arg-type]
    with pytest.raises(KitError, match="timeout_s is 0; it must be more than 0"):
        kafka.when("Metadata").edit(fails, timeout_s=0)
    with pytest.raises(KitError, match="edit changes the fields of an answer: name the request"):
        kafka.when().edit(fails)
    place = f"1/{'0' * 32}"
    rule = {"api": "Metadata", "action": "edit", "function": place, "seconds": 1.0}
    wrong: tuple[dict[str, Any], ...] = (
        {"function": "x"}, {"function": f"65536{place[1:]}"}, {"edit": {"controller_id": 1}}, {"action": "hold"}, {"seconds": 0},
    )  # fmt: skip
    for change in wrong:
        with pytest.raises(KitError, match=r"the function of a rule is for the Python package txbroker\.testing: use the action edit with"):
            parse_rule({**rule, **change})
    assert parse_rule(rule).function == place
    until(lambda: not threads(), "the end of the thread of functions")
