"""The control port and its description in OpenAPI are the same: each operation is described, and answers as it is described."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from kafka import KafkaConsumer
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.support.waiting import PATIENCE_S, until
from txbroker.testing import Kafka
from txbroker.testing.control_forms import Operation
from txbroker.testing.control_routes import OPERATIONS
from txbroker.testing.openapi import openapi_document

RULE = {"api": "Produce", "topic": "orders", "trigger": "on_call", "count": 2, "action": "error", "error": "NOT_LEADER_OR_FOLLOWER"}
# What each operation is tried with, by its name: values in its path and query, and a body. A new operation needs a line here.
TRIED: Mapping[str, Mapping[str, Any]] = {
    "version": {},
    "openapi": {},
    "rules": {},
    "addRule": {"body": RULE},
    "rule": {"path": {"id": "1"}},
    "removeRule": {"path": {"id": "1"}},
    "release": {"path": {"id": "1"}},
    "journal": {"query": "since=0"},
    "reset": {},
    "clock": {},
    "advance": {"body": {"seconds": 0}},
    "beginAt": {"body": {"seconds": 86_400}},
    "endAt": {},
    "expire": {"body": {"group": "readers"}},
    "brokers": {},
    "refuse": {"path": {"broker": "0"}},
    "accept": {"path": {"broker": "0"}},
    "roll": {"body": {"topic": "orders"}},
    "compact": {"body": {"topic": "state"}},
    "trim": {"body": {"topic": "orders", "partition": 0, "before": 0}},
    "fill": {"body": {"topic": "orders", "count": 10}},
    "truncate": {"body": {"topic": "orders", "partition": 0, "to": 0}},
    "recreate": {"body": {"topic": "orders"}},
    "snapshot": {"body": {"to": "{tmp}/snapshot"}},
    "restore": {"body": {"from": "{tmp}/restored"}},
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka(topics={"orders": 1}) as running:
        running.create_topic("state", cleanup_policy="compact")
        yield running


def request(kafka: Kafka, method: str, path: str, body: object) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(kafka.control_url.removeprefix("http://"), timeout=PATIENCE_S)
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json"} if content else {})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found


def test_the_document_is_valid() -> None:
    document = openapi_document(OPERATIONS)
    OpenAPIV31SpecValidator(json.loads(json.dumps(document))).validate()
    names = [operation.name for operation in OPERATIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_an_operation_says_what_it_does_and_takes(operation: Operation) -> None:
    assert operation.summary.endswith(".") and len(operation.summary) > 10
    taken = {**operation.query, **(operation.body or {"properties": {}})["properties"]}
    assert [name for name, schema in taken.items() if len(schema.get("description", "")) < 5] == [], "they have no description"


@pytest.mark.process
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_an_operation_answers_as_it_is_described(kafka: Kafka, operation: Operation, tmp_path: Path) -> None:
    """Also what it is sent is as described."""
    assert operation.name in TRIED, f"add {operation.name} to TRIED"
    assert request(kafka, "POST", "/v1/reset", {})[0] == 200
    _, rule = request(kafka, "POST", "/v1/rules", {"action": "hold"})
    kafka.produce("orders", "one")  # for the journal
    with prepared(kafka, operation.name):
        check(kafka, operation, str(rule["id"]), tmp_path)


@contextmanager
def prepared(kafka: Kafka, name: str) -> Iterator[None]:
    """What an operation needs."""
    if name == "endAt":
        assert request(kafka, "POST", "/v1/at", {"seconds": 86_400})[0] == 200
    if name == "expire":
        kafka.reset()
        consumer = KafkaConsumer("orders", **kafka.client_config("kafka-python", "readers"))
        # It may have no partitions: kafka-python joins before it knows those of the topic.
        until(lambda: consumer.poll(100) or kafka.journal.where(api="SyncGroup", group="readers", outcome="answered"), "it is a member")
        yield
        consumer.close(autocommit=False)
    else:
        yield
    if name == "beginAt":
        assert request(kafka, "POST", "/v1/at/end", {})[0] == 200


def check(kafka: Kafka, operation: Operation, rule_id: str, tmp_path: Path) -> None:
    if operation.name == "restore":
        kafka.snapshot(tmp_path / "restored")
    tried = TRIED[operation.name]
    _, document = request(kafka, "GET", "/v1/openapi.json", None)
    path = operation.path.format(**{name: rule_id if name == "id" else value for name, value in tried.get("path", {}).items()})
    query = f"?{tried['query']}" if "query" in tried else ""
    body = tried.get("body", {}) if operation.method == "POST" else None
    if body is not None:
        body = {key: value.replace("{tmp}", str(tmp_path)) if isinstance(value, str) else value for key, value in body.items()}
    described = document["paths"][f"/v1{operation.path}"][operation.method.lower()]
    if body is not None:
        Draft202012Validator(described["requestBody"]["content"]["application/json"]["schema"]).validate(body)
    status, answer = request(kafka, operation.method, f"/v1{path}{query}", body)
    assert status == 200, answer
    Draft202012Validator(described["responses"]["200"]["content"]["application/json"]["schema"]).validate(answer)
    if operation.name == "journal":
        assert answer["entries"], "the form of an entry has been seen"


@pytest.mark.process
def test_nothing_else_is_served(kafka: Kafka) -> None:
    _, document = request(kafka, "GET", "/v1/openapi.json", None)
    served = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert served == {(f"/v1{operation.path}", operation.method.lower()) for operation in OPERATIONS}
    status, problem = request(kafka, "GET", "/v1/rules/1/release", None)
    assert (status, problem["error"]) == (404, "there is no GET /v1/rules/1/release; GET /v1/openapi.json has what there is")


@pytest.mark.process
@pytest.mark.parametrize("wrong", [
    {**RULE, "atcion": "hold"}, {**RULE, "count": "2"}, {**RULE, "count": 0}, {**RULE, "action": "explode"},
    {**RULE, "error": "NOT_LEADER"}, {**RULE, "error": "NONE"},
    {**RULE, "trigger": "never"}, {**RULE, "probability": 2}, {"api": "Produce"}, [], {**RULE, "of": "both"}, {**RULE, "optional": 1},
])  # fmt: skip
def test_the_description_refuses_what_the_port_refuses(kafka: Kafka, wrong: Any) -> None:
    _, document = request(kafka, "GET", "/v1/openapi.json", None)
    schema = document["paths"]["/v1/rules"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert not Draft202012Validator(schema).is_valid(wrong)
    status, problem = request(kafka, "POST", "/v1/rules", wrong)
    error = document["components"]["schemas"]["Error"]
    Draft202012Validator(error).validate(problem)
    assert status == 400
