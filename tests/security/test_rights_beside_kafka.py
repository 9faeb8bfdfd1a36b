"""Each line of Kafka's table of rights on txbroker and on Apache Kafka 3.9 and 4.3, by the same bytes: the same answers.

`DIFFERENT` has what differs from Kafka on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.security.rights_lines import LINES, Line
from tests.security.rights_sides import FORMS, Populated, Real, framed, normal, without_messages
from tests.support.acls import OPEN
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaOldProcess, KafkaProcess
from tests.support.raw import ConnectionEnded, RawConnection
from tests.support.raw_admin import advertised
from tests.support.sasl import sasl_server

pytestmark = pytest.mark.process

KINDS = (BrokerProcess.kind, KafkaOldProcess.kind, KafkaProcess.kind)
STANDARD = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
OLD, NEW = KINDS[1:]
_LATER = "Kafka answers before the new topic has leaders, with an error"
_LOST = "the answer of v1 has no partitions, and so no error"
_CONFIGURATION = "a denied creation also has the error of the configuration"
DIFFERENT: Mapping[tuple[str, str], str] = {
    (OLD, "Metadata, a new topic"): _LATER,
    (NEW, "Metadata, a new topic"): _LATER,
    (OLD, "OffsetFetch, DESCRIBE G"): _LOST,
    (OLD, "OffsetFetch, DESCRIBE T"): _LOST,
    (OLD, "CreateTopics"): _CONFIGURATION,
    (OLD, "CreateTopics, the configuration"): _CONFIGURATION,
    (NEW, "InitProducerId"): "allow.everyone.if.no.acl.found is not enough: a topic with a certain name must be one without ACLs",
    (NEW, "AlterConfigs of brokers"): "the controller refuses the change of a client that has the right",
}
# Where only the text of a denial differs. Java's clients show the same for both.
_REQUEST = "Kafka's text is its own description of the request, with the listener, the buffer and the class of the session"
_OF_REQUESTS = ("DescribeAcls", "CreateAcls", "DeleteAcls", "AlterPartitionReassignments", "ListPartitionReassignments")
_ABSENT = "Kafka 3.9 has no text here, Kafka 4.3 that of txbroker"
MESSAGES: Mapping[tuple[str, str], str] = {
    **{(kind, name): _REQUEST for kind in (OLD, NEW) for name in _OF_REQUESTS},
    (NEW, "AlterUserScramCredentials"): _REQUEST,
    (NEW, "ElectLeaders"): _REQUEST,
    (OLD, "ElectLeaders"): "Kafka 3.9 has no text here",
    **{(OLD, f"{api} of {what}"): _ABSENT for api in ("AlterConfigs", "IncrementalAlterConfigs") for what in ("a topic", "brokers")},
    (OLD, "DeleteTopics"): _ABSENT,
    (OLD, "DeleteTopics by id"): _ABSENT,
    (OLD, "CreatePartitions"): "Kafka 3.9 has a text of its own, Kafka 4.3 none",
}
PRODUCE = 0
PRODUCE_VERSION_MIN = 3  # Kafka 4 advertises older ones, and refuses them
KAFKA = [pytest.param(kind, line, id=f"{kind}-{line.name}") for kind in KINDS[1:] for line in LINES]


@pytest.fixture(scope="module")
def sides(server_directory: Path) -> Iterator[dict[str, Populated]]:
    """Each kind of broker."""
    with ExitStack() as stack:
        found = {}
        for kind in KINDS:
            overrides = {**OPEN, **(STANDARD if kind == KafkaProcess.kind else {})}
            server, _ = sasl_server(kind, server_directory / f"every-right-{kind}", overrides)
            stack.callback(server.close)
            server.start()
            found[kind] = Populated(Real(server), advertised(server), str(server.data))
        yield found
        assert "Traceback" not in found[BrokerProcess.kind].side.server.log()  # type: ignore[attr-defined]


def versions(line: Line, ours: Populated, theirs: Populated) -> list[int]:
    """The lowest and the highest that both serve."""
    both = sorted(set(ours.versions(line)) & set(theirs.versions(line)))
    both = [version for version in both if line.key != PRODUCE or version >= PRODUCE_VERSION_MIN]
    return both if len(both) < 3 else [both[0], both[-1]]


def outcomes(side: Populated, line: Line, version: int) -> dict[str, Any]:
    """What is answered without the right, and which error codes are with it."""
    found: dict[str, Any] = {}
    for form in (form for form in FORMS if form.line is line):
        answer = side.ask(form, version)
        found[form.name] = _codes(answer) if form.allowed else normal(answer)
        if form.name == "nothing" and not line.by_id:
            found["missing"] = normal(side.ask(form, version, missing=True))
    return found


def _codes(answer: Any) -> Any:
    """Which errors an answer has, None if there is none: the rest depends on more than the rights."""
    return answer and sorted(set(re.findall(r"error_code': (-?\d+)", str(answer))))


def differences(ours: Populated, theirs: Populated, line: Line, both: list[int]) -> list[Any]:
    """Version and form, our answer and the other one."""
    found: list[Any] = []
    for version in both:
        mine, other = outcomes(ours, line, version), outcomes(theirs, line, version)
        found += [(version, form, mine[form], other[form]) for form in mine if mine[form] != other[form]]
    return found


@pytest.mark.parametrize(("kind", "line"), KAFKA)
def test_answers_are_those_of_kafka(sides: dict[str, Populated], kind: str, line: Line) -> None:
    ours, theirs = sides[BrokerProcess.kind], sides[kind]
    both = versions(line, ours, theirs)
    if not both:
        pytest.skip("not served by both")
    found = differences(ours, theirs, line, both)
    if (kind, line.name) in MESSAGES:
        assert found, "the texts are the same"
        found = [each for each in found if without_messages(each[2]) != without_messages(each[3])]
    assert bool(found) == ((kind, line.name) in DIFFERENT), found


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_answered_before_the_login(sides: dict[str, Populated], kind: str) -> None:
    """Of all lines at once: a broker closes these connections after a delay."""
    side = sides[kind]
    server: Any = side.side.server  # type: ignore[attr-defined]
    with ExitStack() as stack:
        opened = {}
        for line in LINES:
            for version in list(side.versions(line))[-1:]:
                connection = opened[line.name] = stack.enter_context(RawConnection(server.sasl))
                connection.send_bytes(framed(line.key, version, line.request(side.present, version))[1])
        for name, connection in opened.items():
            with pytest.raises((ConnectionEnded, ConnectionResetError)):
                connection.receive_frame()
                raise AssertionError(name)
