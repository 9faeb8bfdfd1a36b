"""The ledgers of the simulation find planted anomalies of transactions and groups, and nothing in correct runs."""

from __future__ import annotations

import re

import pytest

from simulation import histories
from simulation.group_ledger import GroupLedger
from simulation.ledger import ANOMALIES
from simulation.run import run_plan
from simulation.transaction_ledger import Consumed, Sent, TransactionLedger
from simulation.workloads import draw
from txbroker.names import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SOURCE = TopicPartition("s", 0)


class Transactions:
    """Transactions with one record in each of two partitions."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.ledger = TransactionLedger(lambda invariant, text: self.found.append(f"{invariant} {text}"))

    def add(self, number: int, *, asked: bool = True, committed: bool | None = None, copied: tuple[int, int] | None = None) -> Sent:
        sent = self.ledger.begun(f"x-{number}", "x")
        for partition in (A, B):
            self.ledger.sent(sent, partition, [self.value(number, partition)])
        sent.acknowledged.update(sent.values)
        sent.commit_asked = asked
        if copied:
            sent.consumed = Consumed("g", SOURCE, *copied)
        if committed is not None:
            self.ledger.ended(sent, committed=committed)
        return sent

    @staticmethod
    def value(number: int, partition: TopicPartition) -> bytes:
        return f"{number} in {partition}".encode()

    def at_end(self, *numbers: int, partitions: tuple[TopicPartition, ...] = (A, B)) -> list[str]:
        """What is found if these transactions are visible, in this order."""
        self.ledger.check_end({p: {self.value(number, p): offset for offset, number in enumerate(numbers)} for p in partitions})
        return self.found


def test_each_anomaly_of_a_history_violates_an_invariant() -> None:
    kinds = re.findall(r"^\| `([\w-]+)`", histories.__doc__ or "", re.MULTILINE)
    assert "lost-latest" in kinds and ANOMALIES["lost-latest"] == "I13"
    assert {kind for kind in kinds if kind not in ANOMALIES} == set()


def test_committed_and_aborted_transactions_as_they_must_be() -> None:
    run = Transactions()
    run.add(1, committed=True, copied=(0, 2))
    run.add(2, asked=False, committed=False)
    run.add(3, copied=(2, 5))  # without an answer
    run.ledger.read("c", A, 0, run.value(1, A))
    assert run.ledger.committed_offset("g", SOURCE) == 2 and run.ledger.committed_offset("other", SOURCE) == -1
    run.ledger.next_offset("g", SOURCE, 2, 2, "x")
    assert run.at_end(1, 3) == [] and run.at_end(1) == []


@pytest.mark.parametrize(
    ("asked", "committed", "why"), [(False, None, "was not committed"), (True, False, "was aborted"), (False, False, "was aborted")]
)
def test_records_that_must_not_be_visible(asked: bool, committed: bool | None, why: str) -> None:
    run = Transactions()
    run.add(1, asked=asked, committed=committed)
    run.ledger.read("c", A, 7, run.value(1, A))
    assert run.found == [f"I9 c read {run.value(1, A)!r} at t-0@7, and the transaction x-1 {why}"]


def test_a_half_committed_transaction() -> None:
    run = Transactions()
    run.add(1)
    assert run.at_end(1, partitions=(A,)) == ["I9 transaction x-1 is half committed: it has 1 of 2 records"]


def test_a_committed_transaction_that_is_missing_and_one_in_another_order() -> None:
    run = Transactions()
    for number in (1, 2, 3):
        run.add(number, committed=True)
    found = run.at_end(2, 1)
    assert found[0].startswith("I9 transaction x-3 is committed, and b'3 in t-0'")
    assert found[1].startswith("I9 b'2 in t-0' is at t-0@0, before b'1 in t-0'")


@pytest.mark.parametrize(("second", "text"), [((1, 3), "from 1 to 3"), ((3, 4), "from 3 to 4")])
def test_input_that_is_copied_twice_or_not_at_all(second: tuple[int, int], text: str) -> None:
    run = Transactions()
    run.add(1, committed=True, copied=(0, 2))
    run.add(2, committed=True, copied=second)
    assert len(run.at_end(1, 2)) == 1 and text in run.found[0]


@pytest.mark.parametrize("offset", [-1, 1, 3])
def test_an_offset_that_no_transaction_has_committed(offset: int) -> None:
    run = Transactions()
    run.add(1, committed=True, copied=(0, 2))
    run.ledger.next_offset("g", SOURCE, offset, 2, "x")
    assert len(run.found) == 1 and f"offset {offset} of group g" in run.found[0]


def test_two_members_with_one_partition_and_offsets_that_go_back() -> None:
    found: list[str] = []
    ledger = GroupLedger(lambda invariant, text: found.append(f"{invariant} {text}"))
    ledger.synced("g", 1, "m", [A], 0)
    ledger.synced("g", 1, "n", [B], 1)
    ledger.synced("g", 2, "n", [A, B], 1)
    for offset in (0, 1):
        ledger.trying("g", A, offset)
    ledger.committed("g", A, 0)
    ledger.fetched("g", A, 1, 0, "m")
    assert not found
    ledger.synced("g", 2, "m", [B], 0)
    assert found.pop() == "I8 m and n are both assigned t-1 in generation 2 of g"
    ledger.synced("g", 1, "m", [A], 2)
    assert found.pop().startswith("I8 m is in generation 1 of g, and generation 2")
    ledger.fetched("g", A, 0, ledger.known("g", A), "m")
    assert found.pop().startswith("I8 m: offset 1 of g for t-0 is committed, and 0 is fetched")
    ledger.accepted("g", 2, 2, "m")
    assert not found
    ledger.accepted("g", 1, 2, "m")
    assert found.pop() == "I8 m has committed in generation 1 of g, after generation 2 had begun"
    ledger.fetched("g", A, 2, ledger.known("g", A), "m")
    assert "2 is fetched (1 was the last one tried)" in found.pop()


def test_each_kind_of_work_is_done() -> None:
    plans = [draw(seed) for seed in range(1, 60)]
    result, _ = run_plan(next(plan for plan in plans if plan.transactional))
    assert result.violation is None and result.counts["transactions committed"] > 0
    result, cluster = run_plan(next(plan for plan in plans if plan.groups))
    assert result.violation is None and all(member.has_committed for member in cluster.clients.members if member.owned)
    result, cluster = run_plan(next(plan for plan in plans if len(plan.administrators) == 1 and plan.brokers > 2))
    assert result.violation is None and cluster.clients.administrators[0].requests > 5
