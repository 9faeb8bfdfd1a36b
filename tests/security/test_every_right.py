"""Each line of Kafka's table of rights (`rights_lines.py`): allowed, denied, missing, and without a login."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from docs.reference_pages.protocol import served
from tests.api.test_every_version import SERVED
from tests.security.in_process import SaslBroker
from tests.security.rights_lines import LINES, Line
from tests.security.rights_sides import FORMS, Form, InProcess, Populated, denials, framed, normal, seen
from txbroker.api.authorization import denial

EACH_LINE = [pytest.param(line, id=line.name) for line in LINES]
# Every client may send them; SaslHandshake and SaslAuthenticate are part of logins.
FREE = {17, 18, 36, 60}
# Only for clients that have logged in: tests/security/test_token_brokers.py.
TOKENS = {38, 39, 40, 41}
# Kafka's are made of the request, with its connection and its principal. FindCoordinator of several keys has an empty one.
TEXTS = {f"{kind} authorization failed." for kind in ("Topic", "Group", "Cluster", "Transactional Id")} | {"Authorization failed.", ""}


def texts(answer: Any) -> set[str]:
    """The messages of errors of rights."""
    found = re.findall(r"'error_code': (?:29|30|31|53), (?:'[a-z_]+': [^,]+, )*?'error_message': '([^']*)'", str(answer))
    return set(found)


def forms(line: Line) -> list[Form]:
    return [form for form in FORMS if form.line is line]


@pytest.fixture(scope="module")
def populated() -> Iterator[Populated]:
    side = InProcess()
    yield Populated(side, SERVED, "/data")
    side.broker.close()


@pytest.mark.parametrize("line", EACH_LINE)
def test_a_right_is_needed_and_suffices(populated: Populated, line: Line) -> None:
    versions = populated.versions(line)
    assert versions
    for version in versions:
        for form in forms(line):
            answer = populated.ask(form, version)
            where = (form.name, version, answer)
            assert (answer is None) == (line.is_closed and not form.allowed), where
            if answer is None:
                continue
            if form.allowed:
                assert not denials(answer), where
            elif line.error is None:
                assert form.name == "nothing" or not denials(answer), where
            elif form.name == "denied" or len(line.needs) == 1:
                assert denials(answer) == {line.error}, where
            else:
                assert denials(answer), where
            assert texts(answer) <= TEXTS, where
            if line.seen:
                assert seen(line, answer) == form.allowed, where


@pytest.mark.parametrize("line", [pytest.param(line, id=line.name) for line in LINES if not line.by_id])
def test_what_is_missing_looks_as_what_is_denied(populated: Populated, line: Line) -> None:
    for version in populated.versions(line):
        denied, missing = (normal(populated.ask(forms(line)[0], version, missing=missing)) for missing in (False, True))
        assert denied == missing, version


@pytest.mark.parametrize("line", EACH_LINE)
def test_nothing_is_answered_before_the_login(anonymous: SaslBroker, populated: Populated, line: Line) -> None:
    for version in populated.versions(line):
        _, data = framed(line.key, version, line.request(populated.present, version))
        assert anonymous.send([data], 1.0) == (b"", True), version


def test_the_documentation_has_the_errors_of_the_table() -> None:
    """The protocol reference is generated from the same declarations."""
    for key, api in served().items():
        if key in SERVED:
            errors = {line.error for line in LINES if line.key == key and line.error is not None}
            assert {denial(resource).code for resource in api.refused} == errors, api.request.__name__


def test_the_table_has_every_api() -> None:
    assert {line.key for line in LINES} | FREE | TOKENS == SERVED.keys() | {17, 36}
    names = [line.name for line in LINES]
    assert len(set(names)) == len(names)
