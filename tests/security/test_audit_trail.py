"""What becomes a line of the audit log: which events, what they have, and how many there can be."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from twisted.internet.task import Clock

from txbroker.api.request_context import Session
from txbroker.broker.audit_file import WAITING_MAX
from txbroker.security.acl_index import NO_ACL, SUPER_USER, Rule
from txbroker.security.acl_model import AclOperation as Op
from txbroker.security.acl_model import AclResource as R
from txbroker.security.audit_trail import (
    CUT,
    DISTINCT_MAX,
    LINES_MAX,
    REPEATS_S,
    SOURCES_MAX,
    TEXT_MAX,
    AuditTrail,
    Kind,
    shortened,
)

PERIOD_S = 600.0


def session(principal: str = "User:alice", host: str = "10.0.0.7", listener: str = "CLIENTS") -> Session:
    return Session(
        peer_host=host, peer_port=51234, local_host="10.0.0.1", local_port=9092, listener=listener, number=1, principal=principal
    )


class Recorded(AuditTrail):
    """A trail whose lines are kept."""

    def __init__(self, *kinds: Kind) -> None:
        self.clock = Clock()
        self.found: list[dict[str, Any]] = []
        super().__init__(
            self._keep, kinds or list(Kind), self.clock, lambda: 1_700_000_000_123 + int(self.clock.seconds() * 1000), 4,
            is_broker=lambda client: client.principal == "User:broker", use_period_s=PERIOD_S,
        )  # fmt: skip

    def _keep(self, line: bytes) -> None:
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        self.found.append(json.loads(line))

    def deny(self, name: str = "t", who: Session | None = None) -> None:
        self.denied(who or session(), "app", "Produce", Op.WRITE, R.TOPIC, name, Rule(NO_ACL))

    def use(self, name: str = "t", who: Session | None = None, operation: Op = Op.READ, kind: R = R.TOPIC) -> None:
        self.used(who or session(), "app", "Fetch", operation, kind, name, lambda: Rule(SUPER_USER))

    def fail(self, user: str = "alice", reason: str = "wrong password", host: str = "10.0.0.7") -> None:
        self.login_failed(session("User:ANONYMOUS", host), None, "PLAIN", user, "wrong_password", reason)


def test_a_denial_has_who_from_where_what_and_why() -> None:
    trail = Recorded()
    trail.deny()
    assert trail.found == [
        {
            "time": "2023-11-14T22:13:20.123Z", "broker": 4, "event": "denial", "principal": "User:alice", "client_id": "app",
            "host": "10.0.0.7", "port": 51234, "listener": "CLIENTS", "api": "Produce", "operation": "Write", "resource_type": "Topic",
            "resource": "t", "outcome": "denied", "decided_by": "no ACL", "acl": None,
        }
    ]  # fmt: skip


def test_repeated_events_are_counted_in_one_line_a_minute() -> None:
    trail = Recorded()
    for _ in range(1000):
        trail.deny()
        trail.fail()
        trail.logged_in(session(), "app", "PLAIN")
    assert [line["event"] for line in trail.found] == ["denial", "login_failure", "login"]
    trail.clock.advance(REPEATS_S)
    assert [(line["event"], line["repeated"]) for line in trail.found[3:]] == [("denial", 999), ("login_failure", 999), ("login", 999)]
    assert trail.found[3]["resource"] == "t" and trail.found[3]["time"] == "2023-11-14T22:14:20.123Z"
    trail.deny()
    assert len(trail.found) == 7 and "repeated" not in trail.found[-1]
    assert trail.left_out == {"denial": 999, "login": 999, "login_failure": 999}


def test_a_flood_of_different_events_hides_neither_its_size_nor_others() -> None:
    trail = Recorded()
    for number in range(DISTINCT_MAX + 500):
        trail.deny(f"t{number}")
    trail.fail()
    assert len(trail.found) == DISTINCT_MAX + 1 and trail.found[-1]["event"] == "login_failure"
    trail.deny(who=session(principal="User:carol"))
    trail.deny(who=session(host="10.0.0.8"))
    assert [(line["principal"], line["host"]) for line in trail.found[-2:]] == [("User:carol", "10.0.0.7"), ("User:alice", "10.0.0.8")]
    trail.clock.advance(REPEATS_S)
    left_out = {"principal": "User:alice", "host": "10.0.0.7", "left_out": 500}
    assert trail.found[-1] == {"time": "2023-11-14T22:14:20.123Z", "broker": 4, "event": "denial", **left_out}
    assert not trail.clock.getDelayedCalls()


def test_failed_logins_of_an_address_do_not_hide_those_of_others() -> None:
    trail = Recorded()
    for number in range(DISTINCT_MAX + 7):
        trail.fail(user=f"u{number}")
    trail.fail(host="10.0.0.8")
    assert len(trail.found) == DISTINCT_MAX + 1 and trail.found[-1]["host"] == "10.0.0.8"
    trail.clock.advance(REPEATS_S)
    assert [(line["principal"], line["host"], line["left_out"]) for line in trail.found[DISTINCT_MAX + 1 :]] == [(None, "10.0.0.7", 7)]


def test_a_flood_from_different_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbroker.security.audit_trail.SOURCES_MAX", 10)
    trail = Recorded()
    for number in range(25):
        trail.fail(host=f"10.0.1.{number}")
    assert len(trail.found) == 10
    trail.clock.advance(REPEATS_S)
    assert [(line.get("host"), line["left_out"]) for line in trail.found[10:]] == [*((f"10.0.1.{n}", 1) for n in range(10, 20)), (None, 5)]


def test_many_sources_have_bounded_lines_and_each_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbroker.security.audit_trail.LINES_MAX", 12)
    trail = Recorded()
    for number in range(4):
        for user in range(5):
            trail.fail(user=f"u{user}", host=f"10.0.1.{number}")
    assert Counter(line["host"] for line in trail.found) == {"10.0.1.0": 5, "10.0.1.1": 5, "10.0.1.2": 2, "10.0.1.3": 1}
    trail.clock.advance(REPEATS_S)
    assert [(line["host"], line["left_out"]) for line in trail.found[13:]] == [("10.0.1.2", 3), ("10.0.1.3", 4)]


def test_a_minute_of_all_sources_fits_into_what_waits_for_the_file() -> None:
    """One turn writes how often each line was repeated, and what was left out of each source."""
    assert 2 * LINES_MAX + 2 * SOURCES_MAX <= WAITING_MAX


def test_long_names_are_not_kept() -> None:
    trail = Recorded()
    for end in "abc":
        trail.fail(user="x" * 500_000 + end)
        trail.deny("x" * 500_000 + end)
    assert len(trail.found) == 2
    ((failure,),) = (each for source, each in trail._seen.items() if source.kind is Kind.LOGIN_FAILURE)
    assert len(str(failure)) < 2 * TEXT_MAX


@pytest.mark.parametrize("text", ["x" * 5000, "\U0001f600" * 1000, "é\x00" * 600, "x" * 999 + "\n\n"])
def test_long_texts_are_cut_by_their_size_in_the_line(text: str) -> None:
    short = shortened(text)
    assert short.endswith(CUT) and text.startswith(short.removesuffix(CUT))
    assert TEXT_MAX - 12 <= len(json.dumps(short.removesuffix(CUT))) - 2 <= TEXT_MAX


@pytest.mark.parametrize("text", ["", "x" * TEXT_MAX, "é" * (TEXT_MAX // 6), "\U0001f600" * (TEXT_MAX // 12)])
def test_other_texts_are_whole(text: str) -> None:
    assert shortened(text) == text


def test_every_change_has_its_line() -> None:
    trail = Recorded()
    trail.api_name = {20: "DeleteTopics"}.__getitem__
    for _ in range(DISTINCT_MAX + 1):
        trail.changed(session(), "app", 20, "deleted", "Topic", "t", {})
    assert len(trail.found) == DISTINCT_MAX + 1 and trail.found[0]["api"] == "DeleteTopics" and "details" not in trail.found[0]


def test_the_same_use_is_recorded_once_a_period() -> None:
    trail = Recorded()
    for _ in range(3):
        trail.use()
        trail.use(who=session(host="10.0.0.8"))
        trail.use(operation=Op.WRITE)
    uses = [(line["host"], line["operation"]) for line in trail.found]
    assert uses == [("10.0.0.7", "Read"), ("10.0.0.8", "Read"), ("10.0.0.7", "Write")]
    assert {(line["outcome"], line["decided_by"]) for line in trail.found} == {("allowed", "super.users")}
    trail.clock.advance(PERIOD_S)
    trail.use()
    assert len(trail.found) == 4


def test_uses_of_one_do_not_hide_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbroker.security.audit_trail.USES_OF_ONE_MAX", 3)
    trail = Recorded()
    for number in range(5):
        trail.use(f"t{number}")
    trail.use(who=session(principal="User:carol"))
    assert [line["principal"] for line in trail.found] == ["User:alice"] * 3 + ["User:carol"]
    trail.clock.advance(PERIOD_S)
    assert trail.found[-1]["left_out"] == 2
    trail.use("t4")
    assert trail.found[-1]["resource"] == "t4"


def test_brokers_are_recorded_only_if_something_is_denied_or_changed() -> None:
    trail, broker = Recorded(), session("User:broker")
    trail.use(who=broker)
    trail.use(operation=Op.CLUSTER_ACTION, kind=R.CLUSTER, name="kafka-cluster")
    trail.logged_in(broker, None, "PLAIN")
    assert trail.found == []
    trail.deny(who=broker)
    trail.changed(broker, None, 19, "created", "Topic", "t", {})
    assert [line["event"] for line in trail.found] == ["denial", "change"]


@pytest.mark.parametrize("kind", list(Kind))
def test_only_chosen_events_are_recorded(kind: Kind) -> None:
    trail = Recorded(kind)
    assert trail.records_use == (kind is Kind.USE)
    trail.deny()
    trail.denied_more(session())
    trail.fail()
    trail.logged_in(session(), "app", "PLAIN")
    trail.changed(session(), "app", 20, "deleted", "Topic", "t", {})
    if trail.records_use:
        trail.use()
    trail.stop()
    assert {line["event"] for line in trail.found} == {kind} and not trail.clock.getDelayedCalls()


def test_numbers_of_repeated_events_are_written_at_the_stop() -> None:
    trail = Recorded()
    trail.deny()
    trail.deny()
    trail.stop()
    assert trail.found[-1]["repeated"] == 1 and not trail.clock.getDelayedCalls()


def test_texts_of_clients_are_cut_and_stay_on_their_line() -> None:
    trail, long = Recorded(), "x\n\u2028" * TEXT_MAX
    trail.denied(session(), long, "Produce", Op.WRITE, R.TOPIC, long, Rule(NO_ACL))
    trail.login_failed(session(), long, long[:9], long, "invalid", long)
    for line in trail.found:
        assert all(len(value) <= TEXT_MAX for value in line.values() if isinstance(value, str))
