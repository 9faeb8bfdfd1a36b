"""Brokers that the lines of `rights_lines.py` are tried on: one in this process without sockets, and real ones.

Clients differ by their addresses: each form of each line has one, to which the ACLs are granted before anything is asked.
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.metadata import ApiVersionsRequest

from tests.api.requests import BUILDERS, Entities, make
from tests.api.test_acls import Guarded
from tests.security.rights_lines import DENIALS, LINES, NEW, Line, Right
from tests.support.acls import ADMIN, ALL, ALLOW, ANYONE, CLUSTER, GROUP, LITERAL, PREFIXED, TOPIC, TRANSACTIONAL_ID, Acl
from tests.support.raw import ConnectionEnded, RawConnection
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.wire.records import Record, build

TOPIC_NAME, GROUP_NAME = "present-topic", "present-group"
GHOST_TOPIC, GHOST_GROUP = "missing-topic", "missing-group"
VICTIMS = 20  # topics for requests that delete theirs
DELETE_TOPICS, DELETE_GROUPS, OFFSET_DELETE = 20, 42, 47
KINDS = {"T": TOPIC, "G": GROUP, "X": TRANSACTIONAL_ID, "C": CLUSTER, "N": TOPIC}
_NAMES = {"T": TOPIC_NAME, "G": GROUP_NAME, "X": TOPIC_NAME, "C": "kafka-cluster", "N": NEW}
_PREFIXES = {"T": "present-", "G": "present-", "X": "present-"}  # also of what a request destroys


class Side(Protocol):
    """A broker."""

    def ask(self, host: str, key: int, version: int, fields: Any) -> dict[str, Any] | None:
        """The response to a client at this address; empty without one, None: the connection was closed."""

    def ready(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for it."""


class InProcess:
    """txbroker without sockets."""

    def __init__(self) -> None:
        self.broker = Guarded()
        self.broker.principal = ANYONE

    def ask(self, host: str, key: int, version: int, fields: Any) -> dict[str, Any] | None:
        request, data = framed(key, version, fields)
        self.broker.principal, self.broker.peer_host = "User:admin" if host == ADMIN else ANYONE, host
        output, closed = self.broker.send([data], 0.2)
        if not output:
            return None if closed else {}
        return _decoded(request, output[4:])

    def ready(self, condition: Callable[[], Any], what: str) -> Any:
        for _ in range(100):
            found = condition()
            if found:
                return found
        raise AssertionError(what)


class Real:
    """A broker as a process."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def ask(self, host: str, key: int, version: int, fields: Any) -> dict[str, Any] | None:
        request, data = framed(key, version, fields)
        with RawConnection(self.server.address, host=host) as connection:
            connection.send_bytes(data)
            try:
                if fields.get("acks") == 0:
                    connection.call(ApiVersionsRequest(), 0)
                    return {}
                return _decoded(request, connection.receive_frame())
            except (ConnectionEnded, ConnectionResetError):
                return None

    def ready(self, condition: Callable[[], Any], what: str) -> Any:
        return until(condition, what)


def framed(key: int, version: int, fields: Any) -> tuple[Any, bytes]:
    """A request, and its bytes with their size."""
    request = make(BUILDERS[key][0], fields)
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id="rights")
    return request, request.encode(version=version, header=True, framed=True)


def _decoded(request: Any, frame: bytes) -> dict[str, Any]:
    response_class: Any = ResponseClassRegistry.get_response_class(request.header)
    found: dict[str, Any] = response_class.decode(frame, header=True).to_dict(json=False)
    return found


class Form(NamedTuple):
    """A line with all rights but some. `host`: of its client; `allowed`: what is expected."""

    line: Line
    name: str
    host: str
    granted: Sequence[Right]
    allowed: bool


def forms() -> Iterator[Form]:
    """Those of all lines."""
    hosts = (f"127.1.{number // 250}.{number % 250 + 1}" for number in itertools.count())
    for line in LINES:
        others = [right for index, right in enumerate(line.needs) if index != line.tested]
        yield Form(line, "nothing", next(hosts), (), False)
        if others:
            yield Form(line, "denied", next(hosts), others, False)
        for number, right in enumerate((line.needs[line.tested], *line.enough)):
            yield Form(line, f"allowed-{number}", next(hosts), (*others, right), True)


FORMS = list(forms())


def bindings() -> list[Acl]:
    """The ACLs of all forms, and those of the administrator."""
    every = ((TOPIC, "*"), (GROUP, "*"), (TRANSACTIONAL_ID, "*"), (CLUSTER, "kafka-cluster"))
    found = [Acl(resource, name, LITERAL, ANYONE, ADMIN, ALL, ALLOW) for resource, name in every]
    for form in FORMS:
        for operation, letter in form.granted:
            name, pattern = _NAMES[letter], LITERAL
            if letter == "N" or (letter in _PREFIXES and form.allowed):
                name, pattern = _PREFIXES.get(letter, name), PREFIXED
            found.append(Acl(KINDS[letter], name, pattern, ANYONE, form.host, operation, ALLOW))
    return found


class Populated:
    """A side with topics, a group with offsets, a transactional id with an open transaction, and all ACLs."""

    def __init__(self, side: Side, served: dict[int, tuple[int, int]], log_dir: str) -> None:
        self.side = side
        self.served = served
        self._victims = itertools.cycle(range(VICTIMS))
        for start in range(0, len(bindings()), 500):
            creations = [acl._asdict() for acl in bindings()[start : start + 500]]
            created = self.admin(30, 3, {"creations": creations})
            assert {result["error_code"] for result in created["results"]} == {0}, created
        names = [TOPIC_NAME, *(f"present-victim-{number}" for number in range(VICTIMS))]
        topics = [{"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []} for name in names]
        assert {t["error_code"] for t in self.admin(19, 4, {"topics": topics, "timeout_ms": 30_000})["topics"]} == {0}
        side.ready(lambda: self._leaders(names) == 2 * len(names), "all partitions have leaders")
        described = self.admin(3, 10, {"topics": [{"name": TOPIC_NAME}]})
        topic_id, broker_id = described["topics"][0]["topic_id"], described["brokers"][0]["node_id"]
        self.present = Entities(TOPIC_NAME, uuid.UUID(str(topic_id)), GROUP_NAME, "unknown", 1, broker_id, log_dir)
        self.missing = replace(self.present, topic=GHOST_TOPIC, group=GHOST_GROUP)
        for key_type, key in ((0, GROUP_NAME), (1, TOPIC_NAME)):
            side.ready(partial(self._has_coordinator, key_type, key), "a coordinator")
        records = build([Record(0, 1_700_000_000_000, b"k", b"v")])
        partition = {"index": 0, "records": records}
        self.admin(0, 8, {"acks": 1, "timeout_ms": 5000, "topic_data": [{"name": TOPIC_NAME, "partition_data": [partition]}]})
        side.ready(lambda: self._commit(GROUP_NAME), "an offset is committed")
        self._transaction()

    def admin(self, key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """The answer to the administrator."""
        answer = self.side.ask(ADMIN, key, version, fields)
        assert answer is not None, key
        return answer

    def _has_coordinator(self, key_type: int, key: str) -> bool:
        return bool(self.admin(10, 1, {"key": key, "key_type": key_type})["error_code"] == 0)

    def _leaders(self, names: Sequence[str]) -> int:
        answer = self.admin(3, 5, {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False})
        return sum(p["leader_id"] >= 0 and not p["error_code"] for topic in answer["topics"] for p in topic["partitions"])

    def _commit(self, group: str) -> bool:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "m"}
        fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "",
                  "topics": [{"name": TOPIC_NAME, "partitions": [partition]}]}  # fmt: skip
        return bool(self.admin(8, 7, fields)["topics"][0]["partitions"][0]["error_code"] == 0)

    def _transaction(self) -> None:
        fields = {"transactional_id": TOPIC_NAME, "transaction_timeout_ms": 800_000, "producer_id": -1, "producer_epoch": -1}

        def begun() -> dict[str, Any] | None:
            answer = self.admin(22, 3, fields)
            return None if answer["error_code"] else answer

        given = self.side.ready(begun, "a producer id")
        added = {"transactional_id": TOPIC_NAME, "producer_id": given["producer_id"], "producer_epoch": given["producer_epoch"],
                 "topics": [{"name": TOPIC_NAME, "partitions": [0]}]}  # fmt: skip
        old = {f"v3_and_below_{name}": value for name, value in added.items()}
        self.side.ready(
            lambda: self.admin(24, 3, old)["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"] == 0,
            "the transaction has a partition",
        )

    def versions(self, line: Line) -> range:
        """Those of the line that the broker serves."""
        low, high = self.served.get(line.key, (1, 0))
        return range(max(low, line.versions[0]), min(high, line.versions[1]) + 1)

    def ask(self, form: Form, version: int, *, missing: bool = False) -> dict[str, Any] | None:
        """The answer to a line's request, about what exists or what does not."""
        entities = self.missing if missing else self.present
        if form.line.key == DELETE_TOPICS and form.allowed and not missing:
            entities = self._victim()
        if form.line.key == DELETE_GROUPS and form.allowed and not missing:
            entities = replace(entities, group="present-victim")
            self.side.ready(lambda: self._commit(entities.group), "an offset is committed")
        if form.line.key == OFFSET_DELETE and not missing:
            # An allowed request has deleted the only offset, and with it the group.
            self.side.ready(lambda: self._commit(entities.group), "an offset is committed")
        return self.side.ask(form.host, form.line.key, version, form.line.request(entities, version))

    def _victim(self) -> Entities:
        name = f"present-victim-{next(self._victims)}"
        (found,) = self.admin(3, 10, {"topics": [{"name": name}]})["topics"]
        return replace(self.present, topic=name, topic_id=uuid.UUID(str(found["topic_id"])))


def denials(answer: dict[str, Any]) -> set[int]:
    """The errors of rights in an answer."""
    return {int(code) for code in re.findall(r"'(?:partition_)?error_code': (-?\d+)", str(answer))} & DENIALS


def seen(line: Line, answer: dict[str, Any]) -> bool:
    """Whether an answer has what a line is about."""
    return {"T": f"'{TOPIC_NAME}'", "G": f"'{GROUP_NAME}'", "X": f"'{TOPIC_NAME}'"}.get(line.seen, line.seen) in str(answer)


# What differs between brokers and between requests.
_VOLATILE = frozenset({"throttle_time_ms", "session_id", "topic_id", "producer_id", "producer_epoch", "brokers",
                       "cluster_id", "controller_id", "member_id", "transaction_start_time_ms"})  # fmt: skip


def normal(answer: Any) -> Any:
    """An answer without what is volatile, with one name for what exists and what does not, and lists in one order."""
    if isinstance(answer, dict):
        return {name: normal(value) for name, value in answer.items() if name not in _VOLATILE}
    if isinstance(answer, (list, tuple)):
        return sorted((normal(value) for value in answer), key=repr)
    if isinstance(answer, str):
        text = answer.replace("missing-", "present-")
        return NEW if text.startswith(NEW) else text
    return answer


def without_messages(answer: Any) -> Any:
    """An answer of `normal` without its texts for people."""
    if isinstance(answer, dict):
        return {name: without_messages(value) for name, value in answer.items() if name != "error_message"}
    return [without_messages(value) for value in answer] if isinstance(answer, list) else answer
