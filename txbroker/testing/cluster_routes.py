"""The operations of the control port of a cluster for tests, and those that it has each broker do.

Their `run` gets the `ClusterControl`, which has this list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txbroker import __version__
from txbroker.testing.control_forms import COUNT, EMPTY, TEXT, Asked, Operation, Schema, list_of, object_of
from txbroker.testing.control_routes import ENTRY, NEW_RULE, OPERATIONS, RULE_STATE, as_number
from txbroker.testing.errors import KitError
from txbroker.testing.openapi import openapi_document
from txbroker.testing.rule_specs import KINDS

_BROKER = object_of(
    id=COUNT,
    state={"enum": ["running", "stopped", "paused", "refusing"], "description": "refusing: it refuses the connections of clients"},
    address={**TEXT, "description": "HOST:PORT for clients"},
    pid={**COUNT, "description": "the id of its process"},
    control_url={**TEXT, "description": "its own control port"},
)  # fmt: skip
_LEADER = object_of(
    topic={**TEXT, "description": "a topic"},
    partition={**COUNT, "description": "a partition of it"},
    to={**COUNT, "description": "the id of the broker that leads it from now on"},
)
_ISR: Schema = {
    "type": "object",
    "properties": {
        "topic": {**TEXT, "description": "a topic"},
        "partition": {**COUNT, "description": "a partition of it"},
        "to": {**list_of(COUNT), "description": "the ids of the brokers in its ISR, with the leader; without it all may be in it"},
    },
    "required": ["topic", "partition"],
    "additionalProperties": False,
}
_COORDINATOR: Schema = {
    "type": "object",
    "properties": {
        "key": {**TEXT, "description": "a group, or a transactional id"},
        "to": {**COUNT, "description": "the id of the broker that coordinates it from now on"},
        "kind": {"enum": ["group", "transaction"], "default": "group", "description": "what the key is"},
    },
    "required": ["key", "to"],
    "additionalProperties": False,
}
_ACTIONS = {
    "kill": "End the process of a broker like kill -9; answered when the others know it.",
    "stop": "Stop a broker cleanly; answered when the others know it.",
    "start": "Start a broker again with its data; answered when the others know it.",
    "pause": "Stop the process of a broker with SIGSTOP.",
    "resume": "Let the process of a paused broker go on.",
    "refuse": "Close the connections of the clients of a broker, and refuse new ones.",
    "accept": "Take connections of clients again.",
}


def _document(control: Any, asked: Asked) -> object:
    return openapi_document((*CLUSTER_OPERATIONS, *FORWARDED_OPERATIONS))


def _act(action: str) -> Callable[[Any, Asked], object]:
    return lambda control, asked: control.act(as_number(asked.path["broker"]), action)


def _kill_all(control: Any, asked: Asked) -> object:
    control.brokers.kill_all()
    return {}


def _move_leader(control: Any, asked: Asked) -> object:
    control.moves.move_leader(*_fields(asked.body, topic=str, partition=int, to=int))
    return {}


def _set_isr(control: Any, asked: Asked) -> object:
    if isinstance(asked.body, dict) and "to" not in asked.body:
        control.moves.grow_isr(*_fields(asked.body, topic=str, partition=int))
        return {}
    topic, partition, to = _fields(asked.body, topic=str, partition=int, to=list)
    if not all(type(each) is int for each in to):
        raise KitError(f"to is {to!r}; it must be a list of broker ids")
    control.moves.shrink_isr(topic, partition, to)
    return {}


def _move_coordinator(control: Any, asked: Asked) -> object:
    given = {"kind": "group", **asked.body} if isinstance(asked.body, dict) else asked.body
    control.moves.move_coordinator(*_fields(given, key=str, to=int, kind=str))
    return {}


def _reset(control: Any, asked: Asked) -> object:
    control.reset()
    return {}


def _fields(body: Any, **types: type) -> list[Any]:
    """The values of a JSON object, which must have just these keys; KitError."""
    if not isinstance(body, dict) or body.keys() != types.keys():
        raise KitError(f"the body must be a JSON object with {', '.join(types)}")
    for name, type_ in types.items():
        if not isinstance(body[name], type_) or isinstance(body[name], bool):
            raise KitError(f"{name} is {body[name]!r}; it must be {KINDS[type_]}")
    return [body[name] for name in types]


CLUSTER_OPERATIONS = (
    Operation(
        "GET", "", "version", "The version, and the ids of the brokers.",
        lambda control, asked: {"version": __version__, "brokers": control.brokers.ids}, object_of(version=TEXT, brokers=list_of(COUNT)),
    ),
    Operation("GET", "/openapi.json", "openapi", "This description of the control port.", _document, {"type": "object"}),
    Operation(
        "GET", "/brokers", "brokers", "The state of each broker.",
        lambda control, asked: {"brokers": [each.shown() for each in control.brokers.all()]}, object_of(brokers=list_of(_BROKER)),
    ),
    *(Operation("POST", f"/brokers/{{broker}}/{action}", action, text, _act(action), _BROKER) for action, text in _ACTIONS.items()),
    Operation(
        "POST", "/brokers/{broker}/expire", "expireSession", "End the session of a broker; one that is not paused gets another one.",
        lambda control, asked: control.expire_session(as_number(asked.path["broker"])), _BROKER,
    ),
    Operation("POST", "/kill", "killAll", "End the processes of all brokers like kill -9.", _kill_all, EMPTY),
    Operation("POST", "/leaders", "moveLeader", "Move the leader of a partition.", _move_leader, EMPTY, body=_LEADER),
    Operation("POST", "/isr", "setIsr", "Shrink an ISR, or let it grow.", _set_isr, EMPTY, body=_ISR),
    Operation(
        "POST", "/coordinators", "moveCoordinator", "Move the coordinator of a group or of a transactional id.", _move_coordinator, EMPTY,
        body=_COORDINATOR,
    ),
    Operation(
        "GET", "/rules", "rules", "The state of all rules, the oldest first.", lambda control, asked: {"rules": control.rules()},
        object_of(rules=list_of(RULE_STATE)),
    ),
    Operation(
        "POST", "/rules", "addRule", "Add a rule, for all brokers; its state with its id.",
        lambda control, asked: control.add_rule(asked.body), RULE_STATE, body=NEW_RULE,
    ),
    Operation(
        "GET", "/rules/{id}", "rule", "The state of a rule.", lambda control, asked: control.rule(as_number(asked.path["id"])), RULE_STATE
    ),
    Operation(
        "DELETE", "/rules/{id}", "removeRule", "Remove a rule, and release what it holds; its last state.",
        lambda control, asked: control.remove_rule(as_number(asked.path["id"])), RULE_STATE,
    ),
    Operation(
        "POST", "/rules/{id}/release", "release", "Release what a rule holds, and hold nothing any more.",
        lambda control, asked: control.release_rule(as_number(asked.path["id"])), RULE_STATE,
    ),
    Operation(
        "GET", "/journal", "journal", "The requests to all brokers after a number; `last` is the number of the last one.",
        lambda control, asked: control.journal(as_number(asked.query.get("since", "0"))), object_of(entries=list_of(ENTRY), last=COUNT),
        query={"since": {**COUNT, "default": 0, "description": "the number; of the last 20,000 requests of each broker"}},
    ),
    Operation(
        "POST", "/reset", "reset", "Remove all rules, take connections again, and let all replicas into the ISRs. Clocks stay.",
        _reset, EMPTY,
    ),
)  # fmt: skip
_OWN = {(operation.method, operation.path) for operation in CLUSTER_OPERATIONS}
# What each broker does, one answer of which is that of the cluster.
FORWARDED_OPERATIONS = tuple(operation for operation in OPERATIONS if (operation.method, operation.path) not in _OWN)
