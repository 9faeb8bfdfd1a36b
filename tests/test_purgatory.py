from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from txbroker.purgatory import Parked, Purgatory


class Waiting:
    """An operation that completes once `ready`, and records its end in `log`."""

    def __init__(self, name: str, log: list[str], on_complete: Callable[[], object] = lambda: None) -> None:
        self.name = name
        self.log = log
        self.on_complete = on_complete
        self.ready = False
        self.tries = 0

    def try_complete(self) -> bool:
        self.tries += 1
        if not self.ready:
            return False
        self.log.append(f"{self.name} done")
        self.on_complete()
        return True

    def on_expired(self) -> None:
        self.log.append(f"{self.name} expired")


class PurgatoryHarness:
    def __init__(self, parked_max: int = 1000) -> None:
        self.clock = Clock()
        self.purgatory = Purgatory(self.clock, "fetch", parked_max=parked_max)
        self.log: list[str] = []

    def waiting(self, name: str) -> Waiting:
        return Waiting(name, self.log)

    def park(self, name: str, *keys: Hashable, timeout_ms: int = 500) -> tuple[Waiting, Parked]:
        operation = self.waiting(name)
        parked = self.purgatory.park(operation, keys, timeout_ms)
        assert parked is not None
        return operation, parked

    def empty(self) -> bool:
        return len(self.purgatory) == 0 and not self.purgatory.watched


def test_a_ready_operation_is_not_parked() -> None:
    harness = PurgatoryHarness()
    operation = harness.waiting("a")
    operation.ready = True
    assert harness.purgatory.park(operation, ["k"], 500) is None
    assert harness.log == ["a done"]
    assert harness.empty()
    assert harness.clock.getDelayedCalls() == []


def test_a_check_completes_ready_operations() -> None:
    harness = PurgatoryHarness()
    a, _ = harness.park("a", "k")
    assert len(harness.purgatory) == 1
    assert harness.purgatory.check("k") == 0
    assert harness.purgatory.check("another key") == 0
    a.ready = True
    assert harness.purgatory.check("another key") == 0
    assert harness.purgatory.check("k") == 1
    assert harness.purgatory.check("k") == 0
    assert (harness.log, a.tries) == (["a done"], 3)
    assert harness.empty()
    harness.clock.advance(10)
    assert harness.log == ["a done"]


def test_the_longest_parked_is_tried_first() -> None:
    harness = PurgatoryHarness()
    operations = [harness.park(str(i), "k")[0] for i in range(5)]
    late, _ = harness.park("late", "other", "k")
    operations[2].ready = True
    harness.purgatory.check("k")
    for operation in (*operations, late):
        operation.ready = True
    assert harness.purgatory.check("k") == 5
    assert harness.log == ["2 done", "0 done", "1 done", "3 done", "4 done", "late done"]
    assert harness.empty()


def test_any_of_several_keys_completes_an_operation() -> None:
    harness = PurgatoryHarness()
    a, _ = harness.park("a", "k", ("t", 1), "k")
    a.ready = True
    assert harness.purgatory.check(("t", 1)) == 1
    assert harness.purgatory.check("k") == 0
    assert harness.empty()


def test_without_keys_only_time_helps() -> None:
    harness = PurgatoryHarness()
    harness.park("a", timeout_ms=100)
    harness.clock.advance(0.1)
    assert harness.log == ["a expired"]
    assert harness.empty()


def test_operations_expire_at_their_time_and_once() -> None:
    harness = PurgatoryHarness()
    harness.park("slow", "k", timeout_ms=300)
    harness.clock.advance(0.1)
    fast, _ = harness.park("fast", "k", timeout_ms=100)
    harness.park("as slow", "k", timeout_ms=200)
    harness.clock.advance(0.0985)
    assert harness.log == []
    harness.clock.advance(0.0015)
    assert harness.log == ["fast expired"]
    fast.ready = True
    assert harness.purgatory.check("k") == 0
    harness.clock.advance(0.1)
    assert harness.log == ["fast expired", "slow expired", "as slow expired"]
    assert harness.empty()


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_of_zero_expires_at_once(timeout_ms: int) -> None:
    harness = PurgatoryHarness()
    operation = harness.waiting("a")
    assert harness.purgatory.park(operation, ["k"], timeout_ms) is None
    assert (harness.log, operation.tries) == (["a expired"], 1)
    assert harness.empty()


def test_a_full_purgatory_parks_no_operation() -> None:
    harness = PurgatoryHarness(parked_max=2)
    a, _ = harness.park("a", "k")
    harness.park("b", "k")
    assert harness.purgatory.park(harness.waiting("c"), ["k"], 500) is None
    assert harness.log == ["c expired"]
    a.ready = True
    harness.purgatory.check("k")
    harness.park("d", "k")
    assert len(harness.purgatory) == 2


def test_the_limits_do_not_hold_for_the_broker_itself() -> None:
    harness = PurgatoryHarness(parked_max=1)
    harness.park("a client's", "k")
    internal = harness.waiting("a coordinator's")
    assert harness.purgatory.park(internal, ["k"], 500, internal=True) is not None
    assert harness.purgatory.park(harness.waiting("another client's"), ["k"], 500) is None
    internal.ready = True
    harness.purgatory.check("k")
    assert harness.log == ["another client's expired", "a coordinator's done"]
    harness.purgatory.close()
    assert harness.purgatory.park(harness.waiting("late"), ["k"], 500, internal=True) is None
    assert harness.log[-1] == "late expired"


def test_a_cancelled_operation_neither_completes_nor_expires() -> None:
    harness = PurgatoryHarness()
    a, place = harness.park("a", "k")
    a.ready = True
    assert harness.purgatory.cancel(place)
    assert not harness.purgatory.cancel(place)
    assert harness.purgatory.check("k") == 0
    harness.clock.advance(10)
    assert (harness.log, a.tries) == ([], 1)
    assert harness.empty()


def test_cancelling_after_the_end_changes_nothing() -> None:
    harness = PurgatoryHarness()
    a, completed = harness.park("a", "k")
    _, expired = harness.park("b", "k", timeout_ms=10)
    harness.park("c", "k")
    a.ready = True
    harness.purgatory.check("k")
    harness.clock.advance(0.01)
    assert not harness.purgatory.cancel(completed)
    assert not harness.purgatory.cancel(expired)
    assert len(harness.purgatory) == 1


def test_an_operation_that_checks_its_own_key_completes_once() -> None:
    harness = PurgatoryHarness()
    counts: list[int] = []
    operations = [harness.park(str(i), "k", "j")[0] for i in range(3)]
    other, _ = harness.park("other", "j")

    def moves() -> None:
        other.ready = True
        counts.append(harness.purgatory.check("k"))
        counts.append(harness.purgatory.check("j"))

    for operation in operations:
        operation.ready = True
        operation.on_complete = moves
    assert harness.purgatory.check("k") == 4
    assert counts == [0] * 6
    assert harness.log == ["0 done", "1 done", "2 done", "other done"]
    assert harness.empty()


def test_a_chain_of_a_thousand_does_not_nest() -> None:
    harness = PurgatoryHarness(parked_max=5000)
    operations = [harness.park(str(i), ("k", i))[0] for i in range(3000)]

    def wake(i: int) -> Callable[[], None]:
        def next_one() -> None:
            if i + 1 < len(operations):
                operations[i + 1].ready = True
                harness.purgatory.check(("k", i + 1))

        return next_one

    for i, operation in enumerate(operations):
        operation.on_complete = wake(i)
    operations[0].ready = True
    assert harness.purgatory.check(("k", 0)) == 3000
    assert harness.empty()


def test_an_operation_may_cancel_and_park_others_while_it_completes() -> None:
    harness = PurgatoryHarness()
    a, _ = harness.park("a", "k")
    b, b_place = harness.park("b", "k")
    c, _ = harness.park("c", "k")
    new = harness.waiting("new")

    def act() -> None:
        assert harness.purgatory.cancel(b_place)
        assert harness.purgatory.park(new, ["k"], 500) is not None

    a.on_complete = act
    for operation in (a, b, c):
        operation.ready = True
    assert harness.purgatory.check("k") == 2
    assert harness.log == ["a done", "c done"]
    assert (new.tries, len(harness.purgatory)) == (1, 1)


def test_an_operation_may_cancel_itself_while_it_completes() -> None:
    harness = PurgatoryHarness()
    a, place = harness.park("a", "k")
    a.ready = True
    a.on_complete = lambda: harness.purgatory.cancel(place)
    assert harness.purgatory.check("k") == 1
    assert harness.log == ["a done"]
    assert harness.empty()


def test_an_expiry_may_complete_and_park_others() -> None:
    harness = PurgatoryHarness()
    b, _ = harness.park("b", "k", timeout_ms=1000)
    b.ready = True

    class Moves(Waiting):
        def on_expired(self) -> None:
            super().on_expired()
            harness.purgatory.check("k")
            harness.park("again", "k", timeout_ms=10)

    assert harness.purgatory.park(Moves("a", harness.log), ["j"], 100) is not None
    harness.clock.advance(0.1)
    assert harness.log == ["a expired", "b done"]
    harness.clock.advance(0.01)
    assert harness.log[2:] == ["again expired"]
    assert harness.empty()


class Broken(Waiting):
    def try_complete(self) -> bool:
        if self.ready:
            raise RuntimeError("a bug")
        return False


def test_an_error_in_one_operation_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    harness = PurgatoryHarness()
    broken = Broken("broken", harness.log)
    harness.purgatory.park(broken, ["k"], 500)
    a, _ = harness.park("a", "k")
    broken.ready = a.ready = True
    with caplog.at_level(logging.ERROR, "txbroker.purgatory"):
        assert harness.purgatory.check("k") == 2
        assert harness.purgatory.park(broken, ["k"], 500) is None
    assert harness.log == ["broken expired", "a done", "broken expired"]
    assert len(caplog.records) == 2
    assert harness.empty()


def test_an_error_in_an_expiry_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    class BreaksLate(Waiting):
        def on_expired(self) -> None:
            raise RuntimeError("a bug")

    harness = PurgatoryHarness()
    harness.purgatory.park(BreaksLate("broken", harness.log), ["k"], 100)
    harness.park("a", "k", timeout_ms=100)
    with caplog.at_level(logging.ERROR, "txbroker.purgatory"):
        harness.clock.advance(0.1)
    assert harness.log == ["a expired"]
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().endswith(" expired")
    assert harness.empty()


def test_closing_expires_all_in_order_and_stops_the_timer() -> None:
    harness = PurgatoryHarness()
    harness.park("a", "k", timeout_ms=1000)
    harness.park("b", "k", timeout_ms=10)
    _, place = harness.park("c", "k")
    harness.purgatory.cancel(place)
    harness.purgatory.close()
    assert harness.log == ["a expired", "b expired"]
    assert harness.clock.getDelayedCalls() == []
    assert harness.empty()
    assert harness.purgatory.park(harness.waiting("d"), ["k"], 500) is None
    assert harness.log[2:] == ["d expired"]
    assert harness.clock.getDelayedCalls() == []


def test_ended_operations_leave_no_state() -> None:
    harness = PurgatoryHarness(parked_max=200)
    waiting = [harness.park("stays", "s", timeout_ms=2_000_000_000)[0] for _ in range(10)]
    for i in range(5000):
        a, _ = harness.park("a", "k", ("k", i), timeout_ms=1_000_000 + i)
        a.ready = True
        harness.purgatory.check("k")
    assert len(harness.purgatory) == len(waiting)
    assert set(harness.purgatory.watched) == {"s"}
    assert len(harness.purgatory._deadlines) <= 2 * len(waiting) + 64
    assert len(harness.clock.getDelayedCalls()) == 1


def test_one_timer_serves_all() -> None:
    harness = PurgatoryHarness()
    for i in range(100):
        harness.park(str(i), i, timeout_ms=1000 - i)
        assert len(harness.clock.getDelayedCalls()) == 1
    harness.clock.advance(0.901)
    assert harness.log == ["99 expired"]
    assert len(harness.clock.getDelayedCalls()) == 1
    harness.clock.advance(1)
    assert harness.log == [f"{i} expired" for i in reversed(range(100))]


def test_the_timer_does_not_fire_for_ended_operations() -> None:
    harness = PurgatoryHarness()
    harness.park("stays", "s", timeout_ms=900)
    for i in range(10):
        a, _ = harness.park("a", "k", timeout_ms=100 + i)
        a.ready = True
    harness.purgatory.check("k")
    harness.clock.advance(0.1)
    assert [call.getTime() for call in harness.clock.getDelayedCalls()] == [0.9]


Step = tuple[str, int]


@given(
    st.lists(
        st.tuples(st.sampled_from(["park", "ready", "check", "cancel", "advance"]), st.integers(0, 9)),
        max_size=120,
    )
)
def test_every_operation_ends_once_and_at_the_right_time(steps: list[Step]) -> None:
    harness = PurgatoryHarness(parked_max=20)
    operations: list[tuple[Waiting, Parked, int]] = []
    cancelled: set[str] = set()
    for step, n in steps:
        if step == "park":
            operation = harness.waiting(f"{len(operations)}")
            parked = harness.purgatory.park(operation, [n % 3, (n, "x")], 10 * (n + 1))
            if parked is not None:
                operations.append((operation, parked, round(harness.clock.seconds() * 1000) + 10 * (n + 1)))
            else:
                assert len(harness.purgatory) == 20
                harness.log.pop()
        elif step == "advance":
            harness.clock.advance(n / 1000)
        elif step == "check":
            harness.purgatory.check(n % 3)
        elif operations:
            operation, parked, _ = operations[n % len(operations)]
            if step == "ready":
                operation.ready = True
            elif harness.purgatory.cancel(parked):
                cancelled.add(operation.name)
        ended = [line.split()[0] for line in harness.log]
        assert len(set(ended)) == len(ended)
        assert not cancelled & set(ended)
        now_ms = round(harness.clock.seconds() * 1000)
        for operation, parked, deadline in operations:
            waits = operation.name not in ended and operation.name not in cancelled
            assert waits == (parked.operation is not None)
            assert not waits or deadline > harness.clock.seconds() * 1000 - 0.001, "the clock adds floating-point seconds"
            assert f"{operation.name} expired" not in harness.log or deadline <= now_ms
    assert len(harness.purgatory) == sum(parked.operation is not None for _, parked, _ in operations)


def test_the_keys_of_all_operations_are_bounded() -> None:
    class Waits:
        expired = False

        def try_complete(self) -> bool:
            return False

        def on_expired(self) -> None:
            self.expired = True

    purgatory = Purgatory(Clock(), "fetch", watches_max=3)
    first, second, third = Waits(), Waits(), Waits()
    place = purgatory.park(first, ["a", "b"], 1000)
    assert place is not None
    assert purgatory.park(second, ["c", "d"], 1000) is None and second.expired
    assert purgatory.park(third, ["c"], 1000) is not None
    purgatory.cancel(place)
    assert purgatory.park(Waits(), ["a", "b"], 1000) is not None, "what an operation watched is free again"


def test_an_operation_is_tried_once_per_check() -> None:
    class Done:
        tried = 0

        def try_complete(self) -> bool:
            self.tried += 1
            return True

        def on_expired(self) -> None: ...

    operation = Done()
    purgatory = Purgatory(Clock(), "fetch")
    assert purgatory.park(operation, ["a"], 1000, tried=True) is not None
    assert operation.tried == 0
    assert purgatory.check("a") == 1
