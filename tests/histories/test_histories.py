"""The checker of histories: each anomaly planted by hand and into random histories, and none in histories without one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.histories import (
    Assign,
    Commit,
    Complete,
    Delete,
    End,
    FetchedCommit,
    Operation,
    Outcome,
    Poll,
    Send,
    Topic,
    check,
    from_line,
    to_line,
)
from simulation.histories.operations import NO_OFFSET
from tests.histories.model_run import TOPIC, ModelRun

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
Records = tuple[tuple[int, str], ...]


class Plan:
    """Operations one after the other: each takes one unit of time."""

    def __init__(self) -> None:
        self._times = count(1)
        self.operations: list[Operation] = []

    def _times_and_number(self) -> dict[str, int]:
        number = next(self._times)
        return {"number": number, "began": number, "ended": next(self._times)}

    def send(self, value: str, offset: int = -1, outcome: Outcome = OK, **fields: Any) -> Plan:
        fields = {"client": "p", "topic": "t", "partition": 0, **self._times_and_number(), **fields}
        self.operations.append(Send(value=value, offset=offset, outcome=outcome, **fields))
        return self

    def poll(self, *records: tuple[int, str], client: str = "c", **fields: Any) -> Plan:
        fields = {"topic": "t", "partition": 0, **self._times_and_number(), **fields}
        self.operations.append(Poll(client=client, records=records, **fields))
        return self

    def assign(self, position: int = -1, client: str = "c") -> Plan:
        self.operations.append(Assign(client, next(self._times), "t", 0, position))
        return self

    def end(self, transaction: str, *, committed: bool = True, outcome: Outcome = OK) -> Plan:
        self.operations.append(End("p", transaction=transaction, committed=committed, outcome=outcome, **self._times_and_number()))
        return self

    def commit(self, offset: int, outcome: Outcome = OK, **fields: Any) -> Plan:
        fields = {**self._times_and_number(), **fields}
        self.operations.append(Commit("c", group="g", topic="t", partition=0, offset=offset, outcome=outcome, **fields))
        return self

    def fetch(self, offset: int, **fields: Any) -> Plan:
        fields = {**self._times_and_number(), **fields}
        self.operations.append(FetchedCommit("c", group="g", topic="t", partition=0, offset=offset, **fields))
        return self

    def read_all(self, *records: tuple[int, str], partition: int = 0, read_committed: bool = False) -> Plan:
        """A consumer that begins now."""
        began = next(self._times)
        self.poll(*records, client=f"all-{began}", partition=partition, read_committed=read_committed)
        return self.add(Complete((f"all-{began}",), "t", partition, began, read_committed))

    def add(self, operation: Operation) -> Plan:
        self.operations.append(operation)
        return self

    @property
    def kinds(self) -> set[str]:
        return {anomaly.kind for anomaly in check(self.operations)}


def in_transaction(**fields: Any) -> Plan:
    return Plan().send("a", 0, transaction="x", **fields)


@pytest.mark.parametrize(("plan", "kinds"), [
    (Plan().send("a", 0).send("b", 1).read_all((0, "a"), (1, "b")), ""),
    (Plan().send("a", 0).send("b", 1).read_all((1, "b")), "lost-write"),
    (Plan().send("a").send("b", 1).read_all((1, "b")), "lost-write"),
    (Plan().send("a", 0).send("b", 1).read_all((0, "a")), "unseen"),
    (Plan().send("a", 0, UNKNOWN).send("b", 0).read_all((0, "b")), "inconsistent-offsets"),
    (Plan().send("a", -1, UNKNOWN).send("b", 0).read_all((0, "b")), ""),
    (Plan().send("a", -1, UNKNOWN).poll((0, "a")).send("b", 1).read_all((1, "b")), "lost-write"),
    (Plan().send("a", -1, UNKNOWN).read_all((0, "a")), ""),
    (Plan().read_all().send("a", 0), ""),
    (Plan().send("a", 0).send("b", 1).add(Delete("t", 0, 1)).read_all((1, "b")), ""),
    (Plan().send("a", 0).read_all((0, "a"), (1, "a")), "duplicate"),
    (Plan().send("a", 0, exact=False).read_all((0, "a"), (1, "a")), ""),
    (Plan().send("a", 0).poll((0, "other")).read_all((0, "a")), "inconsistent-offsets unexpected"),
    (Plan().send("a", 0).read_all((0, "a")).read_all((0, "a"), partition=1), "unexpected"),
    (Plan().send("a", -1, FAILED).read_all((0, "a")), "G1a"),
    (in_transaction().end("x").read_all((0, "a"), read_committed=True), ""),
    (in_transaction().end("x", committed=False).read_all((0, "a"), read_committed=True), "G1a"),
    (in_transaction().end("x", outcome=FAILED).read_all((0, "a"), read_committed=True), "G1a"),
    (in_transaction().end("x", committed=False).read_all((0, "a")), ""),
    (in_transaction().end("x", outcome=UNKNOWN).read_all((0, "a"), read_committed=True), ""),
    (in_transaction().end("x", outcome=UNKNOWN).read_all(read_committed=True), ""),
    (in_transaction().poll((0, "a"), read_committed=True).end("x"), "precommitted-read"),
    (in_transaction().poll((0, "a")).end("x"), ""),
    (in_transaction().poll((0, "a"), read_committed=True), "precommitted-read"),
    (in_transaction().send("b", 0, partition=1, transaction="x").end("x", outcome=UNKNOWN)
        .read_all((0, "a"), read_committed=True).read_all(partition=1, read_committed=True), "torn-transaction"),
    (in_transaction().send("b", 0, partition=1, transaction="x").end("x")
        .read_all((0, "a"), read_committed=True).read_all(partition=1, read_committed=True), "torn-transaction unseen"),
    (in_transaction().send("b", 0, partition=1, transaction="x").end("x", outcome=UNKNOWN)
        .read_all(read_committed=True).read_all(partition=1, read_committed=True), ""),
    (Plan().send("a", 0).send("b", 1).poll((0, "a")).poll((1, "b")), ""),
    (Plan().send("a", 0).send("b", 1).poll((0, "a"), (1, "b")).poll((0, "a")), "nonmonotonic-poll"),
    (Plan().send("a", 0).send("b", 1).poll((0, "a"), (1, "b")).assign().poll((0, "a")), ""),
    (Plan().send("a", 0).assign(1).poll((0, "a")), "nonmonotonic-poll"),
    (Plan().send("a", 0).send("b", 1).poll((1, "b"), (0, "a")), "int-nonmonotonic-poll"),
    (Plan().send("a", 0).send("b", 1).send("c", 2).poll((0, "a")).poll((2, "c")), "poll-skip"),
    (Plan().send("a", 0).send("b", 1).send("c", 2).poll((0, "a"), (2, "c")), "int-poll-skip"),
    (Plan().send("a", 0).send("c", 2).poll((0, "a")).poll((2, "c")), ""),
    (Plan().send("a", 0).assign(0).poll((3, "b")).send("b", 3, began=0, ended=9), "poll-skip"),
    (Plan().send("a", 0).assign(1).poll((3, "b")).send("b", 3, began=0, ended=9), ""),
    (Plan().send("a", 0).send("b", 1, transaction="x").send("c", 2).end("x", committed=False)
        .poll((0, "a"), (2, "c"), read_committed=True), ""),
    (Plan().send("a", 0).send("b", 1, transaction="x").send("c", 2).end("x")
        .poll((0, "a"), (2, "c"), read_committed=True), "int-poll-skip"),
    (Plan().send("a", 1).send("b", 0), "nonmonotonic-send"),
    (Plan().send("a", 1, began=1, ended=9).send("b", 0, client="q", began=2, ended=8), ""),
    (Plan().send("a", 1, began=1, ended=2).send("b", 0, client="q", began=3, ended=8), "nonmonotonic-send"),
    (Plan().send("a", 1, exact=False).send("b", 0, exact=False).poll((0, "a"), (1, "a"), client="r"), "inconsistent-offsets"),
    (Plan().fetch(-1).commit(5).fetch(5), ""),
    (Plan().commit(5).fetch(-1), "lost-commit"),
    (Plan().commit(5).commit(7).fetch(5), "lost-commit"),
    (Plan().commit(5).commit(7, FAILED).fetch(5), ""),
    (Plan().commit(5).commit(7, UNKNOWN).fetch(5).fetch(7), ""),
    (Plan().commit(7, UNKNOWN).commit(5).fetch(7), ""),
    (Plan().commit(5).commit(7, UNKNOWN).fetch(7).fetch(5), "lost-commit"),
    (Plan().commit(5).commit(7, UNKNOWN).commit(7, UNKNOWN).fetch(7).commit(8).fetch(7), ""),
    (Plan().commit(5).fetch(6), "unexpected-commit"),
    (Plan().commit(5, began=1, ended=9).commit(7, began=2, ended=8).fetch(5, began=10, ended=11), ""),
    (Plan().commit(5, transaction="x").end("x").fetch(5), ""),
    (Plan().commit(5, transaction="x").end("x").fetch(-1), "lost-commit"),
    (Plan().commit(5, transaction="x").end("x", committed=False).fetch(-1), ""),
    (Plan().commit(5, transaction="x").end("x", committed=False).fetch(5), "unexpected-commit"),
    (Plan().commit(5, transaction="x").fetch(5).end("x"), "unexpected-commit"),
    (Plan().add(Topic("t")).send("a", 0, key="k").send("b", 1, key="k").read_all((1, "b")), ""),
    (Plan().add(Topic("t")).send("a", 0, key="k").send("b", 1, key="k").read_all((0, "a")), "lost-latest"),
    (Plan().add(Topic("t")).send("a", 0, key="k").send("b", 1, key="l").read_all((1, "b")), "lost-latest"),
])  # fmt: skip
def test_planted_anomalies(plan: Plan, kinds: str) -> None:
    assert plan.kinds == set(kinds.split())


def history(chance: Random, steps: int) -> list[Operation]:
    run = ModelRun(chance)
    for _ in range(steps):
        run.step()
    return run.finish()


RUNS = st.builds(history, st.randoms(use_true_random=False), st.integers(0, 60))


@given(RUNS, st.randoms(use_true_random=False))
def test_a_history_of_the_model_has_no_anomaly_in_any_order_and_as_lines(operations: list[Operation], chance: Random) -> None:
    assert check(operations) == []
    lines = [to_line(operation) for operation in operations]
    assert [from_line(line) for line in lines] == operations
    chance.shuffle(operations)
    assert check(operations) == []


def without(operations: list[Operation], gone: Callable[[Poll, int, str], bool]) -> list[Operation]:
    """The history with some records of some polls left out."""
    return [each._replace(records=tuple((offset, value) for offset, value in each.records if not gone(each, offset, value)))
            if isinstance(each, Poll) else each for each in operations]  # fmt: skip


@given(RUNS, st.data())
def test_each_record_that_is_left_out_is_found(operations: list[Operation], data: st.DataObject) -> None:
    """Also if no consumer at all received it."""
    confirmed = [each for each in operations if isinstance(each, Send) and each.outcome is OK]
    if confirmed:
        victim = data.draw(st.sampled_from(confirmed))
        kinds = {anomaly.kind for anomaly in check(without(operations, lambda poll, offset, value: value == victim.value))}
        assert kinds & {"lost-write", "unseen"}


@given(RUNS, st.data())
def test_each_gap_in_what_a_consumer_receives_is_found(operations: list[Operation], data: st.DataObject) -> None:
    plain = {each.value for each in operations if isinstance(each, Send) and each.transaction is None}
    places = [(poll, poll.records[at][1]) for poll in operations if isinstance(poll, Poll) for at in range(1, len(poll.records) - 1)
              if poll.records[at][1] in plain]  # of a transaction it may be the only poll that shows that it was committed
    if places:
        victim, missing = data.draw(st.sampled_from(places))
        kinds = {anomaly.kind for anomaly in check(without(operations, lambda poll, offset, value: poll is victim and value == missing))}
        assert "int-poll-skip" in kinds


@given(RUNS, st.data())
def test_each_repeated_and_each_exchanged_record_is_found(operations: list[Operation], data: st.DataObject) -> None:
    polls = [poll for poll in operations if isinstance(poll, Poll) and len(poll.records) > 1]
    if polls:
        victim = data.draw(st.sampled_from(polls))
        (first, value), (second, other), *more = victim.records
        at = operations.index(victim)
        if shown_elsewhere(operations, victim, value) and shown_elsewhere(operations, victim, other):
            swapped = victim._replace(records=((first, other), (second, value), *more))
            assert {"duplicate", "inconsistent-offsets"} <= {each.kind for each in check([*operations[:at], swapped, *operations[at + 1:]])}
        back = victim._replace(records=(*victim.records, (first, value)))
        assert "int-nonmonotonic-poll" in {each.kind for each in check([*operations[:at], back, *operations[at + 1:]])}


def shown_elsewhere(operations: list[Operation], poll: Poll, value: str) -> bool:
    """Whether another poll, or the response to its producer, shows the offset of a record. Otherwise it may have any."""
    return any(
        (isinstance(each, Send) and each.value == value and each.offset != NO_OFFSET)
        or (isinstance(each, Poll) and each is not poll and value in dict(each.records).values())
        for each in operations
    )


@given(RUNS, st.data())
def test_each_older_committed_offset_is_found(operations: list[Operation], data: st.DataObject) -> None:
    fetches = [each for each in operations if isinstance(each, FetchedCommit)]
    if fetches:
        victim = data.draw(st.sampled_from(fetches))
        at = operations.index(victim)
        confirmed = [each for each in operations[:at] if isinstance(each, Commit) and each.outcome is OK]
        broken = victim._replace(offset=-1 if confirmed else 1000)
        assert [each.kind for each in check([*operations[:at], broken, *operations[at + 1:]])] == [
            "lost-commit" if confirmed else "unexpected-commit"]


def test_a_history_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="sent twice"):
        check(Plan().send("a").send("a").operations)
    with pytest.raises(ValueError, match="ends twice"):
        check(Plan().end("x").end("x").operations)
    for line in ("", "[]", "{}", '{"op":"drop"}', '{"op":"delete"}', '{"op":"delete","topic":"t","partition":0,"offset":1,"more":2}',
                 to_line(Plan().send("a").operations[0]).replace('"ok"', '"perhaps"')):
        with pytest.raises(ValueError, match="not an operation"):
            from_line(line)
    assert from_line('{"op":"delete","topic":"t","partition":0,"offset":1}') == Delete(TOPIC, 0, 1)
