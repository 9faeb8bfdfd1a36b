"""What a request is about, and the errors of a response: by the fields of Kafka's messages, for rules and the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from txbroker.errors import error_name
from txbroker.wire.schema import Request, Response, Struct, field_types

NAMES_MAX = 20  # topic-partitions and errors of one request that the journal shows
TOPIC_IDS_MAX = 10_000
_TOPIC_LISTS = ("topics", "topic_data", "v3_and_below_topics")
_TOPIC_NAMES = ("name", "topic", "topic_name")
_PARTITION_LISTS = ("partitions", "partition_data", "partition_indexes")
_PARTITION_NAMES = ("index", "partition", "partition_index")
_GROUP, _TRANSACTION = 0, 1  # the key types of FindCoordinator
# The fields that say which topic, group or transactional id a request is about.
FIELDS_OF = {
    "topic": frozenset({*_TOPIC_LISTS, "topic_names"}),
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
    for name in _TOPIC_LISTS:
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
    name = next((found for each in _TOPIC_NAMES if (found := getattr(topic, each, None))), None)
    if name is None:
        topic_id = getattr(topic, "topic_id", None)
        if not topic_id:
            return
        name = ids.name(topic_id)
    numbers = [_number(each) for field in _PARTITION_LISTS for each in getattr(topic, field, None) or ()]
    for number in numbers or [-1]:
        yield name, number


def _number(partition: Any) -> int:
    if isinstance(partition, int):
        return partition
    return next((number for each in _PARTITION_NAMES if (number := getattr(partition, each, None)) is not None), -1)


def errors(response: Struct) -> list[str]:
    """The names of the errors in a response, each once, in the order of its fields."""
    found: dict[str, None] = {}
    for holder in _error_holders(response):
        if holder.error_code:
            found[error_name(holder.error_code)] = None
    return list(found)[:NAMES_MAX]


def set_error(response: Struct, code: int) -> None:
    """Put an error in the place of each partition, topic or group of a response; into the response itself if it has none of these."""
    holders = list(_error_holders(response))
    inner = [holder for holder in holders if holder is not response]
    for holder in inner or holders:
        holder.error_code = code
    if inner and "error_code" in type(response).__fields__:
        response.error_code = 0  # type: ignore[attr-defined]


def _error_holders(message: Struct) -> Iterator[Any]:
    """The message and the structs in its lists, as far as they have an error code. Nested structs may be shared defaults: not these."""
    if "error_code" in type(message).__fields__:
        yield message
    for name in type(message).__fields__:
        value = getattr(message, name)
        if isinstance(value, list):
            for element in value:
                if isinstance(element, Struct):
                    yield from _error_holders(element)


def request_classes() -> dict[str, type[Request]]:
    """The requests that this process knows, by their names in Kafka's protocol guide."""
    return {cls.__name__.removesuffix("Request"): cls for cls in Request.__subclasses__()}


def has_field(request: type[Request], matcher: str) -> bool:
    """Whether a request can be about a topic, a group or a transactional id."""
    return not FIELDS_OF[matcher].isdisjoint(field_types(request))
