"""What each request needs, against a broker with Kafka's authorizer: with the rights, without any, and with all but one.

`RIGHTS` is Kafka's table. Kafka 3.9 passes the same tests: `--broker=kafka-3.9`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.api.requests import BUILDERS, Entities, request
from tests.api.test_every_version import SERVED, new_entities
from tests.support.acls import (
    ADMIN,
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    ANYONE,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    OPEN,
    OTHER,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Acl,
    create_acls,
    delete_acls,
    listed_acls,
)
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaOldProcess
from tests.support.raw import RawConnection
from tests.support.raw_admin import advertised
from tests.support.server import Server

NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION = 29, 30, 31, 53
DENIALS = {NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION}
ONE_TOPIC, ONE_GROUP, ONE_TRANSACTION = (TOPIC, "TOPIC"), (GROUP, "GROUP"), (TRANSACTIONAL_ID, "TOPIC")
THE_CLUSTER = (CLUSTER, "kafka-cluster")

# By API key: the operations and their resources, and the errors without any right. Names in capitals are those of the request's entities.
RIGHTS: dict[int, tuple[list[tuple[int, tuple[int, str]]], set[int]]] = {
    0: ([(WRITE, ONE_TOPIC)], {NO_TOPIC}),
    1: ([(READ, ONE_TOPIC)], {NO_TOPIC}),
    2: ([(DESCRIBE, ONE_TOPIC)], {NO_TOPIC}),
    3: ([(DESCRIBE, ONE_TOPIC)], {NO_TOPIC}),
    8: ([(READ, (GROUP, "without-members")), (READ, ONE_TOPIC)], {NO_GROUP}),
    9: ([(DESCRIBE, ONE_GROUP), (DESCRIBE, ONE_TOPIC)], {NO_GROUP}),
    10: ([(DESCRIBE, ONE_GROUP), (DESCRIBE, (GROUP, "another"))], {NO_GROUP}),
    11: ([(READ, (GROUP, "joining-"))], {NO_GROUP}),
    12: ([(READ, ONE_GROUP)], {NO_GROUP}),
    13: ([(READ, ONE_GROUP)], {NO_GROUP}),
    14: ([(READ, ONE_GROUP)], {NO_GROUP}),
    15: ([(DESCRIBE, ONE_GROUP), (DESCRIBE, (GROUP, "unknown"))], {NO_GROUP}),
    16: ([], set()),
    18: ([], set()),
    19: ([(CREATE, (TOPIC, "created-")), (DESCRIBE_CONFIGS, (TOPIC, "created-"))], {NO_TOPIC}),
    20: ([(DELETE, ONE_TOPIC)], {NO_TOPIC}),
    21: ([(DELETE, ONE_TOPIC)], {NO_TOPIC}),
    22: ([], set()),  # with allow.everyone.if.no.acl.found there is a topic that any client may write
    23: ([(DESCRIBE, ONE_TOPIC)], {NO_TOPIC}),
    24: ([(WRITE, ONE_TRANSACTION), (WRITE, ONE_TOPIC)], {NO_TRANSACTION}),
    25: ([(WRITE, ONE_TRANSACTION), (READ, ONE_GROUP)], {NO_TRANSACTION}),
    26: ([(WRITE, ONE_TRANSACTION)], {NO_TRANSACTION}),
    27: ([(CLUSTER_ACTION, THE_CLUSTER)], {NO_CLUSTER}),
    28: ([(WRITE, ONE_TRANSACTION), (READ, ONE_GROUP), (READ, ONE_TOPIC)], {NO_TRANSACTION}),
    29: ([(DESCRIBE, THE_CLUSTER)], {NO_CLUSTER}),
    30: ([(ALTER, THE_CLUSTER)], {NO_CLUSTER}),
    31: ([(ALTER, THE_CLUSTER)], {NO_CLUSTER}),
    32: ([(DESCRIBE_CONFIGS, ONE_TOPIC), (DESCRIBE_CONFIGS, THE_CLUSTER)], {NO_TOPIC, NO_CLUSTER}),
    33: ([(ALTER_CONFIGS, ONE_TOPIC)], {NO_TOPIC}),
    34: ([(ALTER, THE_CLUSTER)], {NO_CLUSTER}),
    35: ([(DESCRIBE, THE_CLUSTER)], {NO_CLUSTER}),
    37: ([(ALTER, ONE_TOPIC)], {NO_TOPIC}),
    42: ([(DELETE, ONE_GROUP)], {NO_GROUP}),
    43: ([(ALTER, THE_CLUSTER)], {NO_CLUSTER}),
    44: ([(ALTER_CONFIGS, ONE_TOPIC)], {NO_TOPIC}),
    45: ([(ALTER, THE_CLUSTER)], {NO_CLUSTER}),
    46: ([(DESCRIBE, THE_CLUSTER)], {NO_CLUSTER}),
    47: ([(DELETE, ONE_GROUP), (READ, ONE_TOPIC)], {NO_GROUP}),
    48: ([(DESCRIBE_CONFIGS, THE_CLUSTER)], {NO_CLUSTER}),
    49: ([(ALTER_CONFIGS, THE_CLUSTER)], {NO_CLUSTER}),
    50: ([(DESCRIBE, THE_CLUSTER)], {NO_CLUSTER}),
    51: ([(ALTER, THE_CLUSTER)], {NO_CLUSTER}),
    60: ([], set()),
    61: ([(READ, ONE_TOPIC)], {NO_TOPIC}),
    65: ([(DESCRIBE, ONE_TRANSACTION)], {NO_TRANSACTION}),
    66: ([], set()),
    75: ([(DESCRIBE, ONE_TOPIC)], {NO_TOPIC}),
}
# The highest version for clients that names topics. Ids are not secret: one that may not be used and one that does not exist differ.
BY_NAME = {0: 12, 1: 12, 3: 11, 8: 9, 9: 7, 20: 5, 24: 3}
DELETES_ENTITIES = {13, 20, 42}
EACH_API = [pytest.param(key, id=BUILDERS[key][0].__name__.removesuffix("Request")) for key in RIGHTS]


@pytest.fixture(scope="module")
def guarded(request: pytest.FixtureRequest, server_directory: Any) -> Iterator[Server]:
    """A broker on which clients at ADMIN may do everything, and others nothing."""
    kind = {BrokerProcess.kind: BrokerProcess, KafkaOldProcess.kind: KafkaOldProcess}.get(request.config.getoption("--broker"))
    if kind is None:
        pytest.skip("its ACLs are KRaft's")
    server = kind(server_directory / "rights", OPEN)
    server.start()
    yield server
    status = server.stop()
    server.close()
    assert status == server.stopped_status and "Traceback" not in server.log()


@pytest.fixture(autouse=True)
def _administrator(guarded: Server) -> None:
    """Also after the request that deletes the ACLs of all topics."""
    every = ((TOPIC, "*"), (GROUP, "*"), (TRANSACTIONAL_ID, "*"), THE_CLUSTER)
    create_acls(guarded.address, [Acl(resource, name, LITERAL, ANYONE, ADMIN, ALL, ALLOW) for resource, name in every])


@pytest.fixture(scope="module")
def served(guarded: Server) -> dict[int, tuple[int, int]]:
    return advertised(guarded)


@pytest.fixture(scope="module")
def shared(guarded: Server) -> Entities:
    return made(guarded)


def made(server: Server) -> Entities:
    with RawConnection(server.address) as connection:
        return new_entities(server, connection)


def version_of(key: int, served: dict[int, tuple[int, int]], *, by_name: bool = True) -> int:
    if key not in served:
        pytest.skip("not served with ZooKeeper")
    highest = min(served[key][1], SERVED[key][1])
    return min(highest, BY_NAME.get(key, highest)) if by_name or key == 24 else highest


def rights(key: int, entities: Entities) -> list[Acl]:
    found = []
    for operation, (resource, name) in RIGHTS[key][0]:
        actual = {"TOPIC": entities.topic, "GROUP": entities.group}.get(name, name)
        found.append(Acl(resource, actual, PREFIXED if name.endswith("-") else LITERAL, ANYONE, OTHER, operation, ALLOW))
    return found


def ask(server: Server, key: int, version: int, entities: Entities, host: str = OTHER) -> Any:
    with RawConnection(server.address, host=host) as connection:
        return connection.call(request(key, version, entities), version)


@contextmanager
def having(server: Server, acls: list[Acl]) -> Iterator[None]:
    """While these ACLs exist."""
    create_acls(server.address, acls)
    try:
        yield
    finally:
        delete_acls(server.address, set(acls) & listed_acls(server.address))  # DeleteAcls may have deleted some


def denials(answer: Any) -> set[int]:
    return {int(code) for code in re.findall(r"error_code': (-?\d+)", str(answer.to_dict(json=False)))} & DENIALS


@pytest.mark.parametrize("key", EACH_API)
def test_a_client_needs_all_rights_of_a_request(guarded: Server, shared: Entities, served: dict[int, tuple[int, int]], key: int) -> None:
    version = version_of(key, served)
    entities = made(guarded) if key in DELETES_ENTITIES else shared
    needed = rights(key, entities)
    assert denials(ask(guarded, key, version, entities)) == RIGHTS[key][1], "without any"
    assert denials(ask(guarded, key, version_of(key, served, by_name=False), entities)) == RIGHTS[key][1], "without any, the newest version"
    for missing in needed if len(needed) > 1 else ():
        with having(guarded, [acl for acl in needed if acl is not missing]):
            assert denials(ask(guarded, key, version, entities)), f"without {missing}"
    with having(guarded, needed):
        answer = ask(guarded, key, version, entities)
        assert denials(answer) == set(), answer
    assert denials(ask(guarded, key, version, made(guarded) if key in DELETES_ENTITIES else entities, host=ADMIN)) == set()


@pytest.mark.parametrize("key", EACH_API)
def test_what_exists_looks_as_what_does_not(guarded: Server, shared: Entities, served: dict[int, tuple[int, int]], key: int) -> None:
    version = version_of(key, served)
    ghosts = replace(shared, topic="x" * len(shared.topic), group="y" * len(shared.group), topic_id=uuid.uuid4())
    known, unknown = (str(ask(guarded, key, version, each).to_dict(json=False)) for each in (shared, ghosts))
    for name, ghost in ((shared.topic, ghosts.topic), (shared.group, ghosts.group)):
        known = known.replace(name, ghost)
    # Kafka's errors of ACL requests contain the request with its connection.
    serial = re.compile(r"(created|joining|user)-\d+|'(session_id|producer_id)': -?\d+|Request\(processor=.* is not authorized")
    assert serial.sub("", known) == serial.sub("", unknown)


def test_the_tables_are_complete() -> None:
    """Requests for delegation tokens need a login: test_token_brokers.py has their rights."""
    assert RIGHTS.keys() | {38, 39, 40, 41} == SERVED.keys()
