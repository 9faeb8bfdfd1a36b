"""The operations of the control port: the one list, for its server and for its description in OpenAPI."""

from __future__ import annotations

import itertools

from txbroker import __version__
from txbroker.errors import ErrorCode
from txbroker.testing.broker_routes import BROKER_OPERATIONS
from txbroker.testing.control_forms import BOOLEAN, COUNT, EMPTY, TEXT, Asked, Operation, Schema, list_of, object_like, object_of
from txbroker.testing.error_scopes import SCOPES
from txbroker.testing.errors import KitError
from txbroker.testing.faults import Faults
from txbroker.testing.journal import Entry
from txbroker.testing.openapi import openapi_document
from txbroker.testing.rule_specs import ACTIONS, TRIGGERS, RuleSpec, check_broker

PAGE_MAX = 2000

_ERRORS = [name for name in ErrorCode.__members__ if name != "NONE"]
_RULE = object_like(RuleSpec, {
    "api": {"description": "the name of the request in Kafka's protocol guide; empty for all requests"},
    "topic": {"description": "only requests about this topic"},
    "partition": {"description": "only requests about this partition of the topic; -1 for all"},
    "broker": {"description": "only requests to the broker with this id; -1 for all"},
    "version": {"description": "only requests of this version; -1 for all"},
    "group": {"description": "only requests about this group"},
    "client_id": {"description": "only requests of this client id"},
    "transactional_id": {"description": "only requests about this transactional id"},
    "trigger": {"enum": list(TRIGGERS), "description": "on which of the matching requests the rule acts"},
    "count": {"minimum": 1, "description": "times: the first so many; on_call: the one with this number"},
    "probability": {"minimum": 0, "maximum": 1, "description": "of the trigger probability"},
    "seed": {"description": "of the trigger probability: the same seed chooses the same ones of the same requests"},
    "after": {"description": "the id of a rule that must have acted before; 0 for none"},
    "for_seconds": {"minimum": 0, "description": "how long the rule matches requests; 0 for as long as it is there"},
    "until_ms": {"description": "the date of the broker's clock at which that ends, in milliseconds since 1970; -1 for none"},
    "action": {"enum": list(ACTIONS), "description": "what happens; it must be given"},
    "error": {"enum": ["", *_ERRORS], "description": "of the action error: a name of Kafka's class Errors"},
    "at": {
        "enum": ["", *SCOPES], "description": "of the action error: the scope of the error code; empty for the smallest one of the answer",
    },
    "seconds": {"minimum": 0, "description": "of the action delay; with a function, how long an answer waits for it"},
    "size": {"minimum": 0, "description": "truncate: so many bytes are sent; slice: bytes of a piece"},
    "milliseconds": {"minimum": 0, "description": "of the action throttle: the throttle_time_ms of the answer"},
    "edit": {"description": "of the action edit: new values of fields of the answer, by paths such as topics[name=orders].error_code"},
    "function": {"description": "of the action edit in place of `edit`: for the Python package txbroker.testing only"},
    "bytes_per_second": {"minimum": 0, "description": "of the action read_slowly"},
    "of": {"enum": ["request", "answer"], "description": "what delay and hold hold back"},
    "optional": {"description": "a client of this port may ignore that the rule never acted"},
})  # fmt: skip
NEW_RULE = {**_RULE, "required": ["action"]}
RULE_STATE = object_of(
    id={**COUNT, "description": "its number, from 1 on"},
    rule={**TEXT, "description": "the rule in one line"},
    calls={**COUNT, "description": "requests that it matched"},
    hits={**COUNT, "description": "requests on which it acted"},
    held={**COUNT, "description": "requests and answers that wait for a release"},
    optional=BOOLEAN,
)  # fmt: skip
ENTRY = object_like(Entry, {
    "n": {"description": "its number, from 1 on"},
    "at_ms": {"description": "milliseconds since the start of the broker, or of its cluster"},
    "broker": {"description": "the id of the broker"},
    "connection": {"description": "the number of the connection, from 1 on"},
    "client_id": {},
    "api": {"description": "the name of the request in Kafka's protocol guide"},
    "version": {"description": "of the request"},
    "correlation_id": {},
    "partitions": {"description": "as topic-0; only the name of the topic if the request is about the whole topic"},
    "topics": {},
    "groups": {},
    "transactional_ids": {},
    "rule": {"description": "the id of the rule that acted on it, or 0"},
    "problem": {"description": "why the function of a rule has not changed the answer, or empty"},
    "outcome": {"description": "open, answered, none (a request without an answer), lost or closed"},
    "errors": {"description": "the names of the errors in the answer"},
    "bytes": {"description": "the size of the answer"},
    "ms": {"description": "milliseconds from the request to its answer; null while there is none"},
})  # fmt: skip
_BROKER = object_of(
    id=COUNT,
    state={"enum": ["running", "refusing"], "description": "refusing: it refuses the connections of clients"},
)  # fmt: skip
_DOCUMENT: Schema = {"type": "object", "required": ["openapi", "info", "paths"]}


def as_number(text: str) -> int:
    """A number in a path or a query; KitError."""
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise KitError(f"{text[:100]!r} is not a number")
    return int(text)


def _version(faults: Faults, asked: Asked) -> object:
    return {"version": __version__}


def _openapi(faults: Faults, asked: Asked) -> object:
    return openapi_document(OPERATIONS)


def _rules(faults: Faults, asked: Asked) -> object:
    return {"rules": [rule.state() for rule in faults.rules.all()]}


def _add_rule(faults: Faults, asked: Asked) -> object:
    return faults.add(asked.body).state()


def _rule(faults: Faults, asked: Asked) -> object:
    return faults.rules.get(as_number(asked.path["id"])).state()


def _remove_rule(faults: Faults, asked: Asked) -> object:
    return faults.remove(as_number(asked.path["id"])).state()


def _release(faults: Faults, asked: Asked) -> object:
    return faults.release(as_number(asked.path["id"])).state()


def _journal(faults: Faults, asked: Asked) -> object:
    since = as_number(asked.query.get("since", "0"))
    entries = [call.as_json() for call in itertools.islice(faults.journal.since(since), PAGE_MAX)]
    return {"entries": entries, "last": faults.journal.last}


def _broker(faults: Faults) -> dict[str, object]:
    return {"id": faults.broker_id, "state": "refusing" if faults.ports.refuses else "running"}


def _brokers(faults: Faults, asked: Asked) -> object:
    return {"brokers": [_broker(faults)]}


def _refuse(faults: Faults, asked: Asked) -> object:
    check_broker(as_number(asked.path["broker"]), [faults.broker_id])
    faults.ports.refuse_clients()
    return _broker(faults)


def _accept(faults: Faults, asked: Asked) -> object:
    check_broker(as_number(asked.path["broker"]), [faults.broker_id])
    faults.ports.accept_clients()
    return _broker(faults)


def _reset(faults: Faults, asked: Asked) -> object:
    faults.reset()
    return {}


OPERATIONS = (
    Operation("GET", "", "version", "The version of the broker.", _version, object_of(version=TEXT)),
    Operation("GET", "/openapi.json", "openapi", "This description of the control port.", _openapi, _DOCUMENT),
    Operation("GET", "/rules", "rules", "The state of all rules, the oldest first.", _rules, object_of(rules=list_of(RULE_STATE))),
    Operation("POST", "/rules", "addRule", "Add a rule; its state with its id.", _add_rule, RULE_STATE, body=NEW_RULE),
    Operation("GET", "/rules/{id}", "rule", "The state of a rule.", _rule, RULE_STATE),
    Operation(
        "DELETE", "/rules/{id}", "removeRule", "Remove a rule, and release what it holds; its last state.", _remove_rule, RULE_STATE
    ),
    Operation("POST", "/rules/{id}/release", "release", "Release what a rule holds, and hold nothing any more.", _release, RULE_STATE),
    Operation(
        "GET", "/journal", "journal", f"The requests after a number, at most {PAGE_MAX}; `last` is the number of the last one.",
        _journal, object_of(entries=list_of(ENTRY), last=COUNT),
        query={"since": {**COUNT, "default": 0, "description": "the number; of the last 20,000 requests"}},
    ),
    Operation("GET", "/brokers", "brokers", "The broker.", _brokers, object_of(brokers=list_of(_BROKER))),
    Operation("POST", "/brokers/{broker}/refuse", "refuse", "Close the connections of clients, and refuse new ones.", _refuse, _BROKER),
    Operation("POST", "/brokers/{broker}/accept", "accept", "Take connections of clients again.", _accept, _BROKER),
    Operation("POST", "/reset", "reset", "Remove all rules, and take connections again. The clock stays.", _reset, EMPTY),
    *BROKER_OPERATIONS,
)  # fmt: skip
