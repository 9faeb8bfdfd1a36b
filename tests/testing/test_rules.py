"""Rules and the journal, with real clients: what a rule does to a client, and what the journal has of it."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import CorruptRecordError, KafkaError

from tests.support.waiting import PATIENCE_S, until
from txbroker.errors import ErrorCode
from txbroker.testing import Kafka, KitError, Namespace, UnmatchedRule

pytestmark = pytest.mark.process


Sent = list[tuple[str | None, int | None]]


def producer(kafka: Kafka, names: Namespace, **more: Any) -> Producer:
    settings = {"client.id": names.client_id(), "retry.backoff.ms": 1, "reconnect.backoff.ms": 1, "linger.ms": 0, "log_level": 0}
    # When its only broker closes a connection, librdkafka would bootstrap again, and close the next one with a request in flight.
    settings["metadata.recovery.strategy"] = "none"
    return Producer({**kafka.client_config("confluent"), **settings, **more})


def begin(sender: Producer, topic: str, value: bytes, sent: Sent) -> None:
    """Produce to partition 0. When it is acknowledged, `sent` gets the name of the error, or None, and the offset."""

    def acknowledged(error: Any, message: Any) -> None:
        sent.append((error and error.name(), message.offset()))

    sender.produce(topic, value, partition=0, on_delivery=acknowledged)


def send(sender: Producer, topic: str, *values: bytes) -> Sent:
    """Produce to partition 0, and wait for the acknowledgements: error name and offset of each."""
    sent: Sent = []
    for value in values:
        begin(sender, topic, value, sent)
    assert sender.flush(PATIENCE_S) == 0
    return sent


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [each.value for each in kafka.records(topic)]


def test_an_error_in_place_of_the_work(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    rule = kafka.when("Produce", topic=topic).on_call(2).error("NOT_LEADER_OR_FOLLOWER")
    sender = producer(kafka, names)
    assert send(sender, topic, b"one") == [(None, 0)]
    assert send(sender, topic, b"two") == [(None, 1)], "the client has repeated it"
    assert rule.hits == 1 and values(kafka, topic) == [b"one", b"two"]
    produced = kafka.journal.where(api="Produce", topic=topic)
    assert [(each.errors, each.rule) for each in produced] == [((), 0), (("NOT_LEADER_OR_FOLLOWER",), rule.number), ((), 0)]
    assert produced[0].partitions == (f"{topic}-0",) and produced[0].client_id == names.client_id() and produced[0].outcome == "answered"
    pattern = {"api": "Produce", "topic": topic}
    refused = {**pattern, "error": "NOT_LEADER_OR_FOLLOWER"}
    assert kafka.journal.entries().in_order(pattern, refused, {**pattern, "errors": ()})
    until(lambda: kafka.journal.entries().in_order(refused, {"api": "Metadata", "topic": topic}), "it has asked for the leader, too")
    assert not kafka.journal.entries().in_order(refused, pattern, pattern)
    assert [each.errors for each in produced.where(errors=())] == [(), ()], "a tuple is compared as a whole"


def test_an_error_that_a_client_does_not_repeat(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    with kafka.when("Produce", topic=topic, partition=0).error(ErrorCode.MESSAGE_TOO_LARGE) as rule:
        assert send(producer(kafka, names), topic, b"one")[0][0] == "MSG_SIZE_TOO_LARGE"
    assert rule.hits == 1 and values(kafka, topic) == []
    with KafkaProducer(**kafka.client_config("kafka-python"), client_id=names.client_id()) as other:
        kafka.when("Produce", client_id=names.client_id()).once().error("TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(KafkaError, match=r"(?i)authoriz"):
            other.send(topic, b"two").get(PATIENCE_S)
    assert values(kafka, topic) == []


def test_a_lost_answer_to_work_that_was_done(kafka: Kafka, names: Namespace) -> None:
    """An idempotent producer repeats the batch, and the broker recognises it. Without idempotence the record is there twice."""
    for idempotent, stored in ((True, [b"one"]), (False, [b"one", b"one"])):
        topic = names.topic("yes" if idempotent else "no")
        with kafka.when("Produce", topic=topic).lose_answer():
            sender = producer(kafka, names, **{"enable.idempotence": idempotent})
            assert send(sender, topic, b"one") == [(None, len(stored) - 1)]
        assert values(kafka, topic) == stored
        assert [each.outcome for each in kafka.journal.where(api="Produce", topic=topic)] == ["lost", "answered"]


def test_a_connection_that_is_closed_in_place_of_the_work(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    rule = kafka.when("Produce", topic=topic).times(2).disconnect()
    assert send(producer(kafka, names), topic, b"one") == [(None, 0)]
    entries = kafka.journal.where(api="Produce", topic=topic)
    assert [each.outcome for each in entries] == ["closed", "closed", "answered"] and rule.hits == 2
    assert len({each.connection for each in entries}) == 3


def test_a_connection_on_which_nothing_is_answered_any_more(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.when("Produce", topic=topic).blackhole()
    sender = producer(kafka, names, **{"enable.idempotence": True, "socket.timeout.ms": 1000, "request.timeout.ms": 900})
    assert send(sender, topic, b"one") == [(None, 0)], "on another connection"
    produced = kafka.journal.where(api="Produce", topic=topic)
    assert produced[0].outcome == "lost" and produced[-1].connection != produced[0].connection
    assert values(kafka, topic) == [b"one"]


@pytest.mark.parametrize("of", ["request", "answer"])
def test_a_request_or_an_answer_that_is_held_back(kafka: Kafka, names: Namespace, of: Any) -> None:
    topic = names.topic()
    rule = kafka.when("Produce", topic=topic).hold(of=of)
    sender = producer(kafka, names)
    sent: Sent = []
    begin(sender, topic, b"one", sent)
    sender.poll(0)
    rule.wait(timeout_s=PATIENCE_S)
    if of == "answer":
        assert [each.value for each in kafka.consume(topic, timeout_s=PATIENCE_S)] == [b"one"]
    else:
        assert values(kafka, topic) == []
    sender.poll(0)
    assert sent == [], "the client has no answer"
    rule.release()
    assert sender.flush(PATIENCE_S) == 0 and sent == [(None, 0)]
    assert values(kafka, topic) == [b"one"]


def test_a_delay_of_one_connection_only(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    rule = kafka.when("Produce", topic=topic, client_id=names.client_id()).delay(0.2)
    first, other = producer(kafka, names), producer(kafka, names, **{"client.id": names.client_id("other")})
    sent: Sent = []
    begin(first, topic, b"one", sent)
    first.poll(0)
    rule.wait(timeout_s=PATIENCE_S)
    assert send(other, topic, b"two") == [(None, 1)]
    assert first.flush(PATIENCE_S) == 0 and sent == [(None, 0)]
    delayed, direct = kafka.journal.where(api="Produce", topic=topic)
    assert (delayed.ms or 0) >= 200 and direct.errors == ()


def test_answers_that_are_cut_sliced_and_sent_twice(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.produce(topic, *(b"%d" % number * 100 for number in range(50)))
    group = names.group()
    kafka.when("Fetch", topic=topic, client_id=names.client_id()).once().truncate(300)
    kafka.when("Fetch", topic=topic, client_id=names.client_id()).on_call(2).slice(100)
    consumer = Consumer({**kafka.client_config("confluent", group), "client.id": names.client_id(), "log_level": 0})
    consumer.subscribe([topic])
    found = [message.value() for message in consumer.consume(50, PATIENCE_S)]
    consumer.close()
    assert found == [b"%d" % number * 100 for number in range(50)]
    outcomes = [each.outcome for each in kafka.journal.where(api="Fetch", topic=topic, client_id=names.client_id())]
    assert outcomes[:2] == ["lost", "answered"]
    kafka.end_rules()
    # Twice: the second answer has the correlation id of a request that the client no longer has.
    rule = kafka.when("Produce", topic=topic).duplicate()
    sender = producer(kafka, names)
    assert send(sender, topic, b"one") == [(None, 50)] and send(sender, topic, b"two") == [(None, 51)]
    assert rule.hits == 1


def test_metadata_with_an_error_has_the_brokers(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    rule = kafka.when("Metadata", topic=topic).times(2).error("LEADER_NOT_AVAILABLE")
    assert send(producer(kafka, names), topic, b"one") == [(None, 0)]
    assert rule.hits == 2
    found = [each.errors for each in kafka.journal.where(api="Metadata", topic=topic, client_id=names.client_id())]
    assert found[:3] == [("LEADER_NOT_AVAILABLE",)] * 2 + [()]


def test_a_throttled_client_waits(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    rule = kafka.when("Produce", topic=topic).throttle(300)
    throttled: list[int] = []
    settings = {"throttle_cb": lambda event: throttled.append(round(event.throttle_time * 1000))}
    sender = producer(kafka, names, **settings)
    assert send(sender, topic, b"one", b"two") == [(None, 0), (None, 1)]
    until(lambda: sender.poll(0) or throttled, "the client reports it")
    assert throttled[0] == 300 and rule.hits == 1


def test_a_corrupted_batch_is_found_and_read_again(kafka: Kafka, names: Namespace) -> None:
    topic, group = names.topic(), names.group()
    settings = {"client_id": names.client_id(), "consumer_timeout_ms": PATIENCE_S * 1000}
    consumer = KafkaConsumer(**kafka.client_config("kafka-python", group), **settings)
    consumer.assign([TopicPartition(topic, 0)])
    rule = kafka.when("Fetch", client_id=names.client_id()).corrupt()

    def has_fetched() -> bool:
        assert not consumer.poll(timeout_ms=50)
        return len(kafka.journal.where(api="Fetch", client_id=names.client_id(), outcome="answered")) >= 2

    until(has_fetched, "the consumer has got answers without records, which cannot be corrupted")
    kafka.produce(topic, "one")
    with pytest.raises(CorruptRecordError):
        next(consumer)
    assert rule.hits == 1
    consumer.close()
    # Another one reads it: kafka-python may decode the bad batch again without end.
    with KafkaConsumer(**kafka.client_config("kafka-python", group), **settings) as again:
        again.assign([TopicPartition(topic, 0)])
        assert next(again).value == b"one"


def test_requests_of_one_version(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    sender = producer(kafka, names)
    assert send(sender, topic, b"one") == [(None, 0)]
    (entry,) = kafka.journal.where(api="Produce", topic=topic)
    other = kafka.when("Produce", topic=topic, version=entry.version - 1).optional().error("MESSAGE_TOO_LARGE")
    same = kafka.when("Produce", topic=topic, version=entry.version).error("MESSAGE_TOO_LARGE")
    assert send(sender, topic, b"two")[0][0] == "MSG_SIZE_TOO_LARGE"
    assert (other.hits, same.hits) == (0, 1)


def test_errors_of_groups_and_transactions(kafka: Kafka, names: Namespace) -> None:
    topic, group, transactional_id = names.topic(), names.group(), names.client_id("id")
    kafka.produce(topic, "one")
    first = kafka.when("FindCoordinator", group=group).times(2).error("COORDINATOR_NOT_AVAILABLE")
    second = kafka.when("OffsetCommit", group=group).after(first).error("REBALANCE_IN_PROGRESS")
    consumer = Consumer({**kafka.client_config("confluent", group), "enable.auto.commit": False, "log_level": 0})
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, PATIENCE_S)
    with pytest.raises(KafkaException, match=r"(?i)rebalance"):
        consumer.commit(message, asynchronous=False)
    consumer.commit(message, asynchronous=False)
    consumer.close()
    assert (first.hits, second.hits) == (2, 1)
    rule = kafka.when("InitProducerId", transactional_id=transactional_id).error("CONCURRENT_TRANSACTIONS")
    sender = producer(kafka, names, **{"transactional.id": transactional_id})
    sender.init_transactions(PATIENCE_S)
    assert rule.hits == 1
    found = kafka.journal.where(api="InitProducerId", transactional_id=transactional_id)
    assert [each.errors for each in found] == [("CONCURRENT_TRANSACTIONS",), ()]


def test_the_same_seed_chooses_the_same_requests(kafka: Kafka, names: Namespace) -> None:
    chosen = []
    for number in range(2):
        topic = names.topic(f"topic-{number}")
        rule = kafka.when("Produce", topic=topic).with_probability(0.4, seed=7).error("MESSAGE_TOO_LARGE")
        sender = producer(kafka, names)
        chosen.append([send(sender, topic, b"x")[0][0] for _ in range(20)])
        assert 0 < rule.hits < 20
    assert chosen[0] == chosen[1]


def test_the_same_script_has_the_same_journal(kafka: Kafka) -> None:
    texts = set()
    for _ in range(20):
        since = kafka.journal.last()
        kafka.create_topic("script")
        kafka.when("Produce", topic="script").on_call(2).error("NOT_LEADER_OR_FOLLOWER")
        with KafkaProducer(**kafka.client_config("kafka-python"), client_id="script", retry_backoff_ms=1) as sender:
            for value in (b"one", b"two"):
                sender.send("script", value, partition=0).get(PATIENCE_S)
        kafka.end_rules()
        kafka.delete_topics("script")
        texts.add(re.sub(r" v\d+ ", " ", kafka.journal.entries(since).where(api="Produce").text(times=False)))
    (text,) = texts
    assert text.splitlines() == [
        "script Produce script-0: answered",
        "script Produce script-0: answered NOT_LEADER_OR_FOLLOWER (a rule acted)",
        "script Produce script-0: answered",
    ]


def test_a_rule_that_never_acts(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    message = rf"the rule Produce\(topic='{topic}'\) times\(1\): error MESSAGE_TOO_LARGE has never acted: correct what it matches"
    with pytest.raises(UnmatchedRule, match=message), kafka.when("Produce", topic=topic).error("MESSAGE_TOO_LARGE"):
        pass
    with kafka.when("Produce", topic=topic).optional().error("MESSAGE_TOO_LARGE"):
        pass
    kafka.when("Produce", topic=topic).always().disconnect()
    with pytest.raises(UnmatchedRule):
        kafka.end_rules()
    kafka.end_rules()
    assert send(producer(kafka, names), topic, b"one") == [(None, 0)], "the rule is gone"
    with pytest.raises(UnmatchedRule), Kafka() as other:
        other.when("Produce").disconnect()


def wrong(name: str, rule: Callable[[Kafka], object], problem: str) -> Any:
    return pytest.param(rule, problem, id=name)


@pytest.mark.parametrize(("rule", "problem"), [
    wrong("api", lambda k: k.when("Prodce").disconnect(), r"there is no request 'Prodce' \(did you mean Produce\?\)"),
    wrong("error", lambda k: k.when("Produce").error("NOT_LEADER"), r"there is no error 'NOT_LEADER' \(did you mean \w+\?\); use a name"),
    wrong("topic", lambda k: k.when("Heartbeat", topic="t").disconnect(), "a rule for Heartbeat with a topic never matches"),
    wrong("group", lambda k: k.when("Produce", group="g").disconnect(), "a rule for Produce with a group never matches"),
    wrong("partition", lambda k: k.when("Produce", partition=1).disconnect(), "a rule for partition 1 needs a topic"),
    wrong("whole topics", lambda k: k.when("DeleteTopics", topic="t", partition=1).disconnect(), "DeleteTopics cannot be about a"),
    wrong("version of all", lambda k: k.when(version=3).disconnect(), "a rule for version 3 needs the name of a request"),
    wrong("no error", lambda k: k.when("Produce").error("NONE"), "NONE is the code of an answer without"),
    wrong("two triggers", lambda k: k.when("Produce").times(2).on_call(3), r"on_call\(\) is called after times\(\): a rule"),
    wrong("of", lambda k: k.when("Produce").delay(1, of="both"), "'of' of a rule is 'both'; it must be one of request, answer"),  # type: ignore[arg-type]
    wrong("below 0", lambda k: k.when("Produce", topic="x", partition=-5).disconnect(), "the partition is -5; it must be 0"),
    wrong("negative version", lambda k: k.when("Produce", topic="x", version=-7).disconnect(), "the version is -7; it must be 0 or more"),
    wrong("times", lambda k: k.when().times(0).disconnect(), "times is 0; it must be from 1 to"),
    wrong("probability", lambda k: k.when().with_probability(2).disconnect(), "the probability is 2.0; it must be from 0 to 1"),
    wrong("delay", lambda k: k.when().delay(-1), "the delay is -1.0 seconds; it must be from 0"),
    wrong("version", lambda k: k.when("Produce", version=99).disconnect(), "a rule for Produce of version 99 never matches: it has the"),
    wrong("throttle", lambda k: k.when("SaslAuthenticate").throttle(5), "an answer to SaslAuthenticate has no throttle time: use delay"),
    wrong("throttle time", lambda k: k.when().throttle(-1), "the throttle time is -1 ms; it must be from 0"),
    wrong("corrupt", lambda k: k.when("Produce").corrupt(), "corrupt changes a record batch, which only Fetch answers have"),
    wrong("slice", lambda k: k.when().slice(0), "the size of slice is 0; it must be a number of bytes"),
    wrong("name", lambda k: k.journal.where(topc="t"), "an entry of the journal has no 'topc'"),
])  # fmt: skip
def test_a_wrong_rule(kafka: Kafka, rule: Callable[[Kafka], object], problem: str) -> None:
    with pytest.raises(KitError, match=problem) as raised:
        rule(kafka)
    assert "\n" not in str(raised.value)


def request(kafka: Kafka, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    place = kafka.control_url.removeprefix("http://")
    connection = http.client.HTTPConnection(place, timeout=PATIENCE_S)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if content else None


def test_rules_that_http_has_removed_have_ended(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    rules = [kafka.when("Produce", topic=topic).on_call(5).disconnect() for _ in range(3)]
    assert request(kafka, "DELETE", f"/v1/rules/{rules[0].number}")[0] == 200
    with rules[1]:
        assert request(kafka, "POST", "/v1/reset", b"{}", Content_Type="application/json") == (200, {})
    with pytest.raises(KitError, match="has ended, with its broker or by a reset: ask for its hits before that"):
        rules[1].hits  # noqa: B018
    kafka.end_rules()
    kafka.end_rules()


def test_the_same_over_http(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    rule = json.dumps({"api": "Produce", "topic": topic, "action": "error", "error": "MESSAGE_TOO_LARGE"}).encode()
    status, added = request(kafka, "POST", "/v1/rules", rule, Content_Type="application/json")
    assert (status, added["hits"]) == (200, 0)
    assert send(producer(kafka, names), topic, b"one")[0][0] == "MSG_SIZE_TOO_LARGE"
    assert request(kafka, "GET", f"/v1/rules/{added['id']}")[1]["hits"] == 1
    assert [each["id"] for each in request(kafka, "GET", "/v1/rules")[1]["rules"]] == [added["id"]]
    entries = request(kafka, "GET", "/v1/journal?since=0")[1]["entries"]
    assert [each["errors"] for each in entries if each["topics"] == [topic] and each["rule"]] == [["MESSAGE_TOO_LARGE"]]
    assert request(kafka, "DELETE", f"/v1/rules/{added['id']}")[0] == 200
    status, problem = request(kafka, "DELETE", f"/v1/rules/{added['id']}")
    assert (status, problem["error"]) == (400, f"there is no rule {added['id']}; it may have been removed")
    request(kafka, "POST", "/v1/rules", rule, Content_Type="application/json")
    assert request(kafka, "POST", "/v1/reset", b"{}", Content_Type="application/json") == (200, {})
    assert request(kafka, "GET", "/v1/rules") == (200, {"rules": []})


def test_what_the_control_port_refuses(kafka: Kafka) -> None:
    as_json = {"Content_Type": "application/json"}
    assert request(kafka, "GET", "/v1", Host="attacker.example") == (403, {"error": f"the Host header must be {kafka.control_url[7:]}"})
    assert request(kafka, "POST", "/v1/reset", b"{}", Content_Type="text/plain")[0] == 415
    assert request(kafka, "POST", "/v1/rules", b"{", **as_json)[0] == 400
    assert request(kafka, "POST", "/v1/rules", b"[" * 60_000, **as_json)[0] == 400
    assert request(kafka, "POST", "/v1/rules", b"[]", **as_json) == (400, {"error": "a rule must be a JSON object"})
    _, problem = request(kafka, "POST", "/v1/rules", b'{"atcion": "hold"}', **as_json)
    assert problem["error"] == "a rule has no 'atcion' (did you mean action?)"
    _, problem = request(kafka, "POST", "/v1/rules", b'{"count": true}', **as_json)
    assert problem["error"] == "count of a rule is True; it must be a whole number"
    assert request(kafka, "GET", "/v1/journal?since=x")[0] == request(kafka, "GET", "/v1/journal?since=")[0] == 400
    status, problem = request(kafka, "GET", "/v1/journal?sicne=5")
    assert (status, problem["error"]) == (400, "GET /journal has no parameter sicne in its query; it may have since")
    status, problem = request(kafka, "PUT", "/v1/rules/1", b"x")
    assert (status, problem["error"]) == (404, "there is no PUT /v1/rules/1; GET /v1/openapi.json has what there is")
    status, problem = request(kafka, "POST", "/v1/rules")
    assert (status, problem["error"]) == (400, "the body is empty; GET /v1/openapi.json has what it must have")
    status, problem = request(kafka, "POST", "/v1/expire")
    assert (status, problem["error"][:18]) == (400, "name what expires:")
    assert request(kafka, "POST", "/v1/reset", Origin="http://attacker.example")[0] == 403
    assert request(kafka, "POST", "/v1/brokers/0/accept") == (200, {"id": 0, "state": "running"}), "nothing in a body is needed"
    assert request(kafka, "GET", "/v1/nothing")[0] == 404 and request(kafka, "GET", "/")[0] == 404
    assert request(kafka, "POST", "/v1/rules", b" " * 70_000, **as_json)[0] == 413
    assert request(kafka, "GET", "/v1")[0] == 200, "it serves on"


def test_a_broker_without_control_refuses_rules(kafka: Kafka) -> None:
    other = Kafka.connect(kafka.bootstrap_servers)
    with pytest.raises(KitError, match="this broker has no control: rules, the journal and the clock need a broker"):
        other.when("Produce").disconnect()
    with pytest.raises(KitError, match="this broker has no control"):
        other.journal.entries()


def test_a_rule_after_one_of_another_broker(kafka: Kafka) -> None:
    with Kafka(topics={"t": 1}) as other:
        rule = other.when("Produce", topic="t").optional().disconnect()
        with pytest.raises(KitError, match=r"after\(\) needs a rule of the same broker: the rule .* is of another one"):
            kafka.when("Produce").after(rule)
        other.kill()
        other.start()
        with pytest.raises(KitError, match="or of the time before its last start"):
            other.when("Produce").after(rule)
        first = other.when("Produce", topic="t").optional().disconnect()
        with pytest.raises(KitError, match=r"after\(\) is called twice"):
            other.when("Fetch").after(first).after(first)


def test_what_cannot_happen_does_not_count(kafka: Kafka, names: Namespace) -> None:
    """An answer that is shorter than it is to be, and what would happen to the answer of a request without one."""
    topic = names.topic()
    when = kafka.when("Produce", topic=topic).optional()
    long = [when.truncate(100_000), when.slice(100_000)]
    sender = producer(kafka, names)
    assert send(sender, topic, b"one", b"two") == [(None, 0), (None, 1)]
    assert [rule.hits for rule in long] == [0, 0]
    produced = kafka.journal.where(api="Produce", topic=topic)
    assert {each.rule for each in produced} == {0} and len({each.connection for each in produced}) == 1
    kafka.end_rules()
    acts = (when.lose_answer, when.duplicate, lambda: when.delay(60), lambda: when.hold(of="answer"), lambda: when.throttle(60_000))
    with KafkaProducer(**kafka.client_config("kafka-python"), client_id=names.client_id("other"), acks=0) as other:
        for number, act in enumerate(acts):
            with act() as rule:
                other.send(topic, b"three")
                kafka.consume(topic, 3 + number, PATIENCE_S)
            assert rule.hits == 0
        sent = kafka.journal.where(api="Produce", client_id=names.client_id("other"))
        assert [(entry.outcome, entry.rule) for entry in sent] == [("none", 0)] * len(acts)
        closed = kafka.when("Produce", topic=topic).error("MESSAGE_TOO_LARGE")
        other.send(topic, b"four")
        closed.wait(timeout_s=PATIENCE_S)


def test_waiting_clients_get_their_answers_when_a_rule_is_removed(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    rule = kafka.when("Produce", topic=topic).always().hold()
    sent: list[Any] = []
    threads = [threading.Thread(target=lambda: sent.append(send(producer(kafka, names), topic, b"x"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    rule.wait(3, PATIENCE_S)
    rule.remove()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(offset for ((_, offset),) in sent) == [0, 1, 2] and rule.hits == 3


def test_rules_and_journal_end_with_the_process() -> None:
    with Kafka(topics={"t": 1}) as kafka:
        with kafka.when("Produce", topic="t").disconnect() as rule:
            kafka.kill()
        kafka.start()
        kafka.when("Fetch", topic="t").optional().disconnect()
        with pytest.raises(KitError, match=r"the rule Produce.* has ended, with its broker or by a reset: ask for its hits before that"):
            assert rule.hits
        assert kafka.produce("t", "one") == [0]
        assert len(kafka.journal.entries()) == 0


def test_an_answer_in_another_protocol(kafka: Kafka) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", kafka.port, timeout=PATIENCE_S)
    connection.request("GET", "/")
    assert connection.getresponse().status == 400, "as a broker without rules answers"
    connection.close()


def test_a_rule_that_ends_at_a_time(names: Namespace, kafka: Kafka) -> None:
    with Kafka(topics={"t": 1}) as other:
        sender = producer(other, names)
        date = other.when("Produce").always().until(timedelta(days=1)).error("MESSAGE_TOO_LARGE")
        assert send(sender, "t", b"one")[0][0] == send(sender, "t", b"two")[0][0] == "MSG_SIZE_TOO_LARGE"
        other.advance(timedelta(days=1))
        assert send(sender, "t", b"three") == [(None, 0)] and date.hits == 2
        moment = other.when("Produce").until(other.now - timedelta(seconds=1)).optional().disconnect()
        assert send(sender, "t", b"four") == [(None, 1)] and moment.hits == 0
        with other.when("Produce").for_seconds(3600).error("MESSAGE_TOO_LARGE"):
            assert send(sender, "t", b"five")[0][0] == "MSG_SIZE_TOO_LARGE"
        other.when("Produce").always().for_seconds(0.2).optional().error("NOT_LEADER_OR_FOLLOWER")
        assert send(sender, "t", b"six") == [(None, 2)], "the client repeats it until the rule has ended"
    with pytest.raises(KitError, match="for_seconds is 0; it must be more than 0"):
        kafka.when().for_seconds(0)
    with pytest.raises(KitError, match="until has the date 2030-01-01 00:00:00 without a time zone"):
        kafka.when().until(datetime(2030, 1, 1))


def test_a_request_that_is_read_slowly(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    rule = kafka.when("Produce", topic=topic).read_slowly(10_000)
    assert send(producer(kafka, names), topic, b"x" * 4000) == [(None, 0)]
    (entry,) = kafka.journal.where(api="Produce", topic=topic)
    assert (entry.ms or 0) >= 400 and rule.hits == 1
    with pytest.raises(KitError, match="0 bytes a second cannot be read"):
        kafka.when("Produce").read_slowly(0)
