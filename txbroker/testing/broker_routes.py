"""The operations of the control port on the broker itself: its clock, its logs, and what ends by request."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.testing.control_forms import COUNT, EMPTY, TEXT, Asked, Operation, Schema, list_of, object_of
from txbroker.testing.operations import Operations

_CLOCK = object_of(
    now_ms={**COUNT, "description": "the date as the broker sees it, in milliseconds since 1970"},
    ahead_ms={**COUNT, "description": "how far its clock is ahead"},
)
_SECONDS = object_of(seconds={"type": "number", "minimum": 0, "description": "by how much; a clock cannot go back"})
_NAMES: Schema = {
    "type": "object",
    "properties": {
        "topic": {**TEXT, "description": "a topic, of which the records are deleted that retention allows to delete"},
        "group": {**TEXT, "description": "a group, of which all members are evicted, or the named one"},
        "member": {**TEXT, "description": "a member id, group.instance.id or client id, in the group or in all of them"},
        "transaction": {**TEXT, "description": "a transactional id, whose open transaction is aborted"},
        "session": {**TEXT, "description": "the id of a broker of a cluster; one that is alone has no session"},
    },
    "additionalProperties": False,
}
_EXPIRED = object_of(members={**list_of(TEXT), "description": "the member ids of the members that were evicted"})
_TOPIC = {"topic": {**TEXT, "description": "its name"}}


def _number(description: str) -> Schema:
    return {**COUNT, "description": description}


_FILLED = object_of(**_TOPIC, count=_number("how many"), size={**_number("bytes of each value"), "default": 100})


_TRIMMED = object_of(
    **_TOPIC,
    partition=_number("its number"),
    before={"type": "integer", "minimum": -1, "default": -1, "description": "the offset; -1 for the end"},
)


def _run(path: str) -> Callable[[Operations, Asked], object]:
    return lambda operations, asked: operations.run(path, asked.body)


def _operation(method: str, path: str, name: str, summary: str, answer: Schema, body: Schema | None = None) -> Operation:
    return Operation(method, path, name, summary, _run(path), answer, body=body, part=Operations)


BROKER_OPERATIONS = (
    _operation("GET", "/clock", "clock", "The date as the broker sees it.", _CLOCK),
    _operation("POST", "/advance", "advance", "Set the clock ahead; answered when all is done that fell due.", _CLOCK, _SECONDS),
    _operation("POST", "/at", "beginAt", "The same until /at/end.", _CLOCK, _SECONDS),
    _operation("POST", "/at/end", "endAt", "Return to the time before /at. What has happened remains.", _CLOCK),
    _operation("POST", "/roll", "roll", "Close the active segment of each partition of a topic.", EMPTY, object_of(**_TOPIC)),
    _operation(
        "POST", "/fill", "fill", "Append records, spread over the partitions; the end of each partition.",
        object_of(ends={"type": "object", "additionalProperties": COUNT}),
        {**_FILLED, "required": ["topic", "count"]},
    ),
    _operation("POST", "/compact", "compact", "Compact a topic; answered when it is done.", EMPTY, object_of(**_TOPIC)),
    _operation(
        "POST", "/trim", "trim", "Delete the records of a partition before an offset.",
        object_of(start=_number("the first offset that is left")),
        {**_TRIMMED, "required": ["topic", "partition"]},
    ),
    _operation(
        "POST", "/truncate", "truncate", "Remove the records from an offset on, as after an unclean leader election.",
        object_of(end=_number("the new end, which is lower if the offset is within a batch"), leader_epoch=_number("the new one")),
        object_of(**_TOPIC, partition=_number("its number"), to=_number("the offset")),
    ),
    _operation("POST", "/recreate", "recreate", "Replace a topic by an empty one of the same name.", EMPTY, object_of(**_TOPIC)),
    _operation(
        "POST", "/snapshot", "snapshot", "Copy the data into a new directory; connections of clients are closed.", EMPTY,
        object_of(to={**TEXT, "description": "its absolute path"}),
    ),
    _operation(
        "POST", "/restore", "restore", "Replace the data by that of a snapshot; connections of clients are closed.", EMPTY,
        object_of(**{"from": {**TEXT, "description": "the absolute path of a snapshot"}}),
    ),
    _operation("POST", "/expire", "expire", "Expire records of a topic, members of groups, or a transaction, now.", _EXPIRED, _NAMES),
)  # fmt: skip
