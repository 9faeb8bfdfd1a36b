"""Errors by their scope: which error codes of an answer a rule sets, and requests of which only some partitions fail.

An error code is that of a partition, of a topic, or of the request. Codes of groups, transactional ids and other things that a request
names count as those of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from txbroker.testing.traffic import (
    ERROR_CODES,
    PARTITION_LISTS,
    PARTITION_NAMES,
    TOPIC_LISTS,
    TOPIC_NAMES,
    TopicIds,
    partition_number,
    topic_name,
)
from txbroker.wire.fieldkinds import resolve
from txbroker.wire.schema import Response, Struct

PARTITION, TOPIC, REQUEST = "partition", "topic", "request"
SCOPES = (PARTITION, TOPIC, REQUEST)
_PARTITION_FIELDS = (*PARTITION_NAMES, "partition_id")
# Fields that identify an element in a list of an answer.
_KEYS = (*TOPIC_NAMES, "topic_id", "group_id", "transactional_id", *_PARTITION_FIELDS)

Chosen = Callable[[str, int], bool]  # whether a rule is about a partition of a topic, or with -1 about the topic


class Code(NamedTuple):
    """The place of an error code in an answer. `partition`: -1 without one."""

    holder: Any
    field: str
    scope: str
    topic: str
    partition: int


def scope_of(cls: type[Struct]) -> str:
    """The scope of the error code in a struct of this class."""
    if issubclass(cls, Response):
        return REQUEST
    fields = cls.__fields__
    if any(name in fields for name in _PARTITION_FIELDS):
        return PARTITION
    return TOPIC if any(name in fields for name in TOPIC_NAMES) else REQUEST


def scopes_of(cls: type[Struct]) -> set[str]:
    """The scopes that error codes have in a struct of this class and in its lists."""
    found = {scope_of(cls)} if any(name in cls.__fields__ for name in ERROR_CODES) else set()
    for field in resolve(cls):
        element = field.kind.element
        if element is not None and element.struct is not None:
            found |= scopes_of(element.struct)
    return found


def codes(message: Struct, version: int, ids: TopicIds, topic: str = "") -> Iterator[Code]:
    """The error codes that an answer has in this version."""
    fields = type(message).__fields__
    topic = topic_name(message, ids) or topic
    for name in ERROR_CODES:
        if name in fields and version in fields[name].versions:
            partition = next((getattr(message, each) for each in _PARTITION_FIELDS if each in fields), -1)
            yield Code(message, name, scope_of(type(message)), topic, partition)
    for name in fields:
        value = getattr(message, name)
        if isinstance(value, list):
            for element in value:
                if isinstance(element, Struct):
                    yield from codes(element, version, ids, topic)


def set_errors(response: Response, version: int, code: int, at: str, chosen: Chosen, ids: TopicIds, *, others: int = 0) -> bool:
    """Have an answer fail at a scope, the smallest one that it has if `at` is empty. False if it has no such error code.

    `others`: of partitions that are not chosen. Topics have no place in an answer that fails as a whole.
    """
    found = list(codes(response, version, ids))
    scope = at or next((each for each in SCOPES if any(place.scope == each for place in found)), "")
    has_failed = False
    for place in found:
        fails = place.scope == scope and (scope == REQUEST or chosen(place.topic, place.partition))
        setattr(place.holder, place.field, code if fails else others if place.scope == PARTITION else 0)
        has_failed = has_failed or fails
        if fails and scope == REQUEST:
            _remove_topics(place.holder)
    return has_failed


def _remove_topics(holder: Any) -> None:
    for field in resolve(type(holder)):
        element = field.kind.element
        if element is not None and element.struct is not None and scopes_of(element.struct) & {PARTITION, TOPIC}:
            setattr(holder, field.name, [])


def keep(message: Any, chosen: Chosen, ids: TopicIds) -> None:
    """Leave only the chosen partitions in a request, and only topics that have some left."""
    for name in (*TOPIC_LISTS, "topic_names"):
        topics = getattr(message, name, None)
        if topics:
            setattr(message, name, [topic for topic in topics if _is_left(topic, chosen, ids)])
    for name in ("groups", "transactions"):
        for element in getattr(message, name, None) or ():
            if isinstance(element, Struct):
                keep(element, chosen, ids)


def _is_left(topic: Any, chosen: Chosen, ids: TopicIds) -> bool:
    if isinstance(topic, str):
        return chosen(topic, -1)
    name = topic_name(topic, ids) or ""
    lists = [field for field in PARTITION_LISTS if getattr(topic, field, None)]
    for field in lists:
        setattr(topic, field, [each for each in getattr(topic, field) if chosen(name, partition_number(each))])
    return any(getattr(topic, field) for field in lists) if lists else chosen(name, -1)


def merge(answer: Struct, failures: Struct) -> None:
    """Add the failures of a part of a request to the answer to the rest of it."""
    for name in type(failures).__fields__:
        theirs = getattr(failures, name)
        if isinstance(theirs, list) and theirs and isinstance(theirs[0], Struct):
            own = getattr(answer, name)
            for element in theirs:
                same = next((each for each in own if _key(each) == _key(element)), None)
                if same is None:
                    own.append(element)
                else:
                    merge(same, element)


def _key(element: Struct) -> list[Any]:
    values = [getattr(element, name, None) for name in _KEYS]
    return [bytes(value) if isinstance(value, memoryview) else value for value in values]
