"""What a request is about, and the errors of a response: by the fields of Kafka's messages, for rules and the journal."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

from txbroker.errors import error_name
from txbroker.wire import messages
from txbroker.wire.schema import Request, Response, Struct, field_types

NAMES_MAX = 20  # topic-partitions and errors of one request that the journal shows
TOPIC_IDS_MAX = 10_000
TOPIC_LISTS = ("topics", "topic_data", "v3_and_below_topics")
TOPIC_NAMES = ("name", "topic", "topic_name")
PARTITION_LISTS = ("partitions", "partition_data", "partition_indexes")
PARTITION_NAMES = ("index", "partition", "partition_index")
ERROR_CODES = ("error_code", "partition_error_code")
_GROUP, _TRANSACTION = 0, 1  # the key types of FindCoordinator
# The fields that say which topic, group or transactional id a request is about.
FIELDS_OF = {
    "topic": frozenset({*TOPIC_LISTS, "topic_names"}),
    "group": frozenset({"group_id", "groups_names", "groups", "key", "coordinator_keys"}),
    "transactional_id": frozenset({"transactional_id", "transactions", "key", "coordinator_keys", "transactional_ids"}),
}


class Subject(NamedTuple):
    """What a request is about. `partitions`: topic and partition, -1 where the request is about the whole topic."""

    partitions: tuple[tuple[str, int], ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()


class TopicIds:
    """The names of topic ids, from the responses that clients have got, and from the broker: newer requests have only ids.

    `known`: the broker's own look-up. It does not know the ids of topics that were deleted.
    """

    def __init__(self) -> None:
        self.known: Callable[[bytes], str | None] = lambda topic_id: None
        self._names: dict[bytes, str] = {}

    def learn(self, response: Response) -> None:
        """Keep the ids that a response has beside names."""
        for topic in getattr(response, "topics", None) or ():
            name, topic_id = getattr(topic, "name", None), getattr(topic, "topic_id", None)
            if name and topic_id and any(topic_id) and len(self._names) < TOPIC_IDS_MAX:
                self._names[bytes(topic_id)] = name

    def name(self, topic_id: bytes) -> str:
        """The name, or the id as text."""
        topic_id = bytes(topic_id)
        return self._names.get(topic_id) or self.known(topic_id) or topic_id.hex()


def subject(request: Request, ids: TopicIds) -> Subject:
    """What it is about."""
    partitions: list[tuple[str, int]] = []
    groups: list[str] = []
    transactions: list[str] = []
    _collect(request, ids, partitions, groups, transactions)
    keys = [key for key in (getattr(request, "key", None), *getattr(request, "coordinator_keys", ())) if key]
    (transactions if getattr(request, "key_type", _GROUP) == _TRANSACTION else groups).extend(keys)
    groups += getattr(request, "groups_names", ())
    transactions += getattr(request, "transactional_ids", None) or ()
    partitions += [(name, -1) for name in getattr(request, "topic_names", ())]
    return Subject(tuple(dict.fromkeys(partitions)), tuple(dict.fromkeys(groups)), tuple(dict.fromkeys(transactions)))


def _collect(message: Any, ids: TopicIds, partitions: list[tuple[str, int]], groups: list[str], transactions: list[str]) -> None:
    if getattr(message, "group_id", None):
        groups.append(message.group_id)
    if getattr(message, "transactional_id", None):
        transactions.append(message.transactional_id)
    for name in TOPIC_LISTS:
        for topic in getattr(message, name, None) or ():
            partitions += _topic(topic, ids)
    for name in ("groups", "transactions"):
        for element in getattr(message, name, None) or ():
            if isinstance(element, str):
                groups.append(element)
            else:
                _collect(element, ids, partitions, groups, transactions)


def _topic(topic: Any, ids: TopicIds) -> Iterator[tuple[str, int]]:
    if isinstance(topic, str):
        yield topic, -1
        return
    name = topic_name(topic, ids)
    if name is None:
        return
    numbers = [partition_number(each) for field in PARTITION_LISTS for each in getattr(topic, field, None) or ()]
    for number in numbers or [-1]:
        yield name, number


def topic_name(message: Any, ids: TopicIds) -> str | None:
    """The name of the topic that a part of a message is about, if it is about one."""
    name = next((found for each in TOPIC_NAMES if (found := getattr(message, each, None))), None)
    topic_id = getattr(message, "topic_id", None)
    return name or (ids.name(topic_id) if topic_id else None)


def partition_number(partition: Any) -> int:
    """The number of a partition in a request, which may be all that there is of it; -1 without one."""
    if isinstance(partition, int):
        return partition
    return next((number for each in PARTITION_NAMES if (number := getattr(partition, each, None)) is not None), -1)


def errors(message: Struct) -> list[str]:
    """The names of the errors in a response, each once, in the order of its fields."""
    return list(dict.fromkeys(error_name(code) for code in _codes(message) if code))[:NAMES_MAX]


def _codes(message: Struct) -> Iterator[int]:
    """Those of the message and of the structs in its lists."""
    for name in type(message).__fields__:
        value = getattr(message, name)
        if name in ERROR_CODES:
            yield value
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Struct):
                    yield from _codes(element)


def request_classes(wanted: str) -> dict[str, type[Request]]:
    """The requests, by their names in Kafka's protocol guide: those that this process has loaded, or all if the wanted one is not there."""
    if wanted not in _loaded_requests():
        for module in pkgutil.iter_modules(messages.__path__):
            importlib.import_module(f"{messages.__name__}.{module.name}")
    return _loaded_requests()


def _loaded_requests() -> dict[str, type[Request]]:
    return {cls.__name__.removesuffix("Request"): cls for cls in Request.__subclasses__()}


def has_partitions(message: type[Struct]) -> bool:
    """Whether a request or response names partitions of its topics."""
    return any(_names_partitions(hint) for name, hint in field_types(message).items() if name in (*TOPIC_LISTS, "responses"))


def _names_partitions(hint: Any) -> bool:
    """Whether a struct within this annotation has a list of partitions."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        return not hint.__fields__.keys().isdisjoint(PARTITION_LISTS)
    return any(_names_partitions(each) for each in get_args(hint))


def has_field(request: type[Request], matcher: str) -> bool:
    """Whether a request can be about a topic, a group or a transactional id."""
    return not FIELDS_OF[matcher].isdisjoint(field_types(request))
