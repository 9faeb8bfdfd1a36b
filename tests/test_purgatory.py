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


class Room:
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
        return len(self.purgatory) == 0 and not self.purgatory._watched


def test_a_ready_operation_is_not_parked() -> None:
    room = Room()
    operation = room.waiting("a")
    operation.ready = True
    assert room.purgatory.park(operation, ["k"], 500) is None
    assert room.log == ["a done"]
    assert room.empty()
    assert room.clock.getDelayedCalls() == []


def test_a_check_completes_ready_operations() -> None:
    room = Room()
    a, _ = room.park("a", "k")
    assert len(room.purgatory) == 1
    assert room.purgatory.check("k") == 0
    assert room.purgatory.check("another key") == 0
    a.ready = True
    assert room.purgatory.check("another key") == 0
    assert room.purgatory.check("k") == 1
    assert room.purgatory.check("k") == 0
    assert (room.log, a.tries) == (["a done"], 3)
    assert room.empty()
    room.clock.advance(10)
    assert room.log == ["a done"]


def test_the_longest_parked_is_tried_first() -> None:
    room = Room()
    operations = [room.park(str(i), "k")[0] for i in range(5)]
    late, _ = room.park("late", "other", "k")
    operations[2].ready = True
    room.purgatory.check("k")
    for operation in (*operations, late):
        operation.ready = True
    assert room.purgatory.check("k") == 5
    assert room.log == ["2 done", "0 done", "1 done", "3 done", "4 done", "late done"]
    assert room.empty()


def test_any_of_several_keys_completes_an_operation() -> None:
    room = Room()
    a, _ = room.park("a", "k", ("t", 1), "k")
    a.ready = True
    assert room.purgatory.check(("t", 1)) == 1
    assert room.purgatory.check("k") == 0
    assert room.empty()


def test_without_keys_only_time_helps() -> None:
    room = Room()
    room.park("a", timeout_ms=100)
    room.clock.advance(0.1)
    assert room.log == ["a expired"]
    assert room.empty()


def test_operations_expire_at_their_time_and_once() -> None:
    room = Room()
    room.park("slow", "k", timeout_ms=300)
    room.clock.advance(0.1)
    fast, _ = room.park("fast", "k", timeout_ms=100)
    room.park("as slow", "k", timeout_ms=200)
    room.clock.advance(0.0985)
    assert room.log == []
    room.clock.advance(0.0015)
    assert room.log == ["fast expired"]
    fast.ready = True
    assert room.purgatory.check("k") == 0
    room.clock.advance(0.1)
    assert room.log == ["fast expired", "slow expired", "as slow expired"]
    assert room.empty()


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_of_zero_expires_at_once(timeout_ms: int) -> None:
    room = Room()
    operation = room.waiting("a")
    assert room.purgatory.park(operation, ["k"], timeout_ms) is None
    assert (room.log, operation.tries) == (["a expired"], 1)
    assert room.empty()


def test_a_full_purgatory_parks_no_operation() -> None:
    room = Room(parked_max=2)
    a, _ = room.park("a", "k")
    room.park("b", "k")
    assert room.purgatory.park(room.waiting("c"), ["k"], 500) is None
    assert room.log == ["c expired"]
    a.ready = True
    room.purgatory.check("k")
    room.park("d", "k")
    assert len(room.purgatory) == 2


def test_a_cancelled_operation_neither_completes_nor_expires() -> None:
    room = Room()
    a, place = room.park("a", "k")
    a.ready = True
    assert room.purgatory.cancel(place)
    assert not room.purgatory.cancel(place)
    assert room.purgatory.check("k") == 0
    room.clock.advance(10)
    assert (room.log, a.tries) == ([], 1)
    assert room.empty()


def test_cancelling_after_the_end_changes_nothing() -> None:
    room = Room()
    a, completed = room.park("a", "k")
    _, expired = room.park("b", "k", timeout_ms=10)
    room.park("c", "k")
    a.ready = True
    room.purgatory.check("k")
    room.clock.advance(0.01)
    assert not room.purgatory.cancel(completed)
    assert not room.purgatory.cancel(expired)
    assert len(room.purgatory) == 1


def test_an_operation_that_checks_its_own_key_completes_once() -> None:
    room = Room()
    counts: list[int] = []
    operations = [room.park(str(i), "k", "j")[0] for i in range(3)]
    other, _ = room.park("other", "j")

    def moves() -> None:
        other.ready = True
        counts.append(room.purgatory.check("k"))
        counts.append(room.purgatory.check("j"))

    for operation in operations:
        operation.ready = True
        operation.on_complete = moves
    assert room.purgatory.check("k") == 4
    assert counts == [0] * 6
    assert room.log == ["0 done", "1 done", "2 done", "other done"]
    assert room.empty()


def test_a_chain_of_a_thousand_does_not_nest() -> None:
    room = Room(parked_max=5000)
    operations = [room.park(str(i), ("k", i))[0] for i in range(3000)]

    def wake(i: int) -> Callable[[], None]:
        def next_one() -> None:
            if i + 1 < len(operations):
                operations[i + 1].ready = True
                room.purgatory.check(("k", i + 1))

        return next_one

    for i, operation in enumerate(operations):
        operation.on_complete = wake(i)
    operations[0].ready = True
    assert room.purgatory.check(("k", 0)) == 3000
    assert room.empty()


def test_an_operation_may_cancel_and_park_others_while_it_completes() -> None:
    room = Room()
    a, _ = room.park("a", "k")
    b, b_place = room.park("b", "k")
    c, _ = room.park("c", "k")
    new = room.waiting("new")

    def act() -> None:
        assert room.purgatory.cancel(b_place)
        assert room.purgatory.park(new, ["k"], 500) is not None

    a.on_complete = act
    for operation in (a, b, c):
        operation.ready = True
    assert room.purgatory.check("k") == 2
    assert room.log == ["a done", "c done"]
    assert (new.tries, len(room.purgatory)) == (1, 1)


def test_an_operation_may_cancel_itself_while_it_completes() -> None:
    room = Room()
    a, place = room.park("a", "k")
    a.ready = True
    a.on_complete = lambda: room.purgatory.cancel(place)
    assert room.purgatory.check("k") == 1
    assert room.log == ["a done"]
    assert room.empty()


def test_an_expiry_may_complete_and_park_others() -> None:
    room = Room()
    b, _ = room.park("b", "k", timeout_ms=1000)
    b.ready = True

    class Moves(Waiting):
        def on_expired(self) -> None:
            super().on_expired()
            room.purgatory.check("k")
            room.park("again", "k", timeout_ms=10)

    assert room.purgatory.park(Moves("a", room.log), ["j"], 100) is not None
    room.clock.advance(0.1)
    assert room.log == ["a expired", "b done"]
    room.clock.advance(0.01)
    assert room.log[2:] == ["again expired"]
    assert room.empty()


class Broken(Waiting):
    def try_complete(self) -> bool:
        if self.ready:
            raise RuntimeError("a bug")
        return False


def test_an_error_in_one_operation_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    room = Room()
    broken = Broken("broken", room.log)
    room.purgatory.park(broken, ["k"], 500)
    a, _ = room.park("a", "k")
    broken.ready = a.ready = True
    with caplog.at_level(logging.ERROR, "txbroker.purgatory"):
        assert room.purgatory.check("k") == 2
        assert room.purgatory.park(broken, ["k"], 500) is None
    assert room.log == ["broken expired", "a done", "broken expired"]
    assert len(caplog.records) == 2
    assert room.empty()


def test_an_error_in_an_expiry_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    class BreaksLate(Waiting):
        def on_expired(self) -> None:
            raise RuntimeError("a bug")

    room = Room()
    room.purgatory.park(BreaksLate("broken", room.log), ["k"], 100)
    room.park("a", "k", timeout_ms=100)
    with caplog.at_level(logging.ERROR, "txbroker.purgatory"):
        room.clock.advance(0.1)
    assert room.log == ["a expired"]
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().endswith(" expired")
    assert room.empty()


def test_closing_expires_all_in_order_and_stops_the_timer() -> None:
    room = Room()
    room.park("a", "k", timeout_ms=1000)
    room.park("b", "k", timeout_ms=10)
    _, place = room.park("c", "k")
    room.purgatory.cancel(place)
    room.purgatory.close()
    assert room.log == ["a expired", "b expired"]
    assert room.clock.getDelayedCalls() == []
    assert room.empty()
    assert room.purgatory.park(room.waiting("d"), ["k"], 500) is None
    assert room.log[2:] == ["d expired"]
    assert room.clock.getDelayedCalls() == []


def test_ended_operations_leave_no_state() -> None:
    room = Room(parked_max=200)
    waiting = [room.park("stays", "s", timeout_ms=2_000_000_000)[0] for _ in range(10)]
    for i in range(5000):
        a, _ = room.park("a", "k", ("k", i), timeout_ms=1_000_000 + i)
        a.ready = True
        room.purgatory.check("k")
    assert len(room.purgatory) == len(waiting)
    assert set(room.purgatory._watched) == {"s"}
    assert len(room.purgatory._deadlines) <= 2 * len(waiting) + 64
    assert len(room.clock.getDelayedCalls()) == 1


def test_one_timer_serves_all() -> None:
    room = Room()
    for i in range(100):
        room.park(str(i), i, timeout_ms=1000 - i)
        assert len(room.clock.getDelayedCalls()) == 1
    room.clock.advance(0.901)
    assert room.log == ["99 expired"]
    assert len(room.clock.getDelayedCalls()) == 1
    room.clock.advance(1)
    assert room.log == [f"{i} expired" for i in reversed(range(100))]


def test_the_timer_does_not_fire_for_ended_operations() -> None:
    room = Room()
    room.park("stays", "s", timeout_ms=900)
    for i in range(10):
        a, _ = room.park("a", "k", timeout_ms=100 + i)
        a.ready = True
    room.purgatory.check("k")
    room.clock.advance(0.1)
    assert [call.getTime() for call in room.clock.getDelayedCalls()] == [0.9]


Step = tuple[str, int]


@given(
    st.lists(
        st.tuples(st.sampled_from(["park", "ready", "check", "cancel", "advance"]), st.integers(0, 9)),
        max_size=120,
    )
)
def test_every_operation_ends_once_and_at_the_right_time(steps: list[Step]) -> None:
    room = Room(parked_max=20)
    operations: list[tuple[Waiting, Parked, int]] = []
    cancelled: set[str] = set()
    for step, n in steps:
        if step == "park":
            operation = room.waiting(f"{len(operations)}")
            parked = room.purgatory.park(operation, [n % 3, (n, "x")], 10 * (n + 1))
            if parked is not None:
                operations.append((operation, parked, round(room.clock.seconds() * 1000) + 10 * (n + 1)))
            else:
                assert len(room.purgatory) == 20
                room.log.pop()
        elif step == "advance":
            room.clock.advance(n / 1000)
        elif step == "check":
            room.purgatory.check(n % 3)
        elif operations:
            operation, parked, _ = operations[n % len(operations)]
            if step == "ready":
                operation.ready = True
            elif room.purgatory.cancel(parked):
                cancelled.add(operation.name)
        ended = [line.split()[0] for line in room.log]
        assert len(set(ended)) == len(ended)
        assert not cancelled & set(ended)
        now_ms = round(room.clock.seconds() * 1000)
        for operation, parked, deadline in operations:
            waits = operation.name not in ended and operation.name not in cancelled
            assert waits == (parked.operation is not None)
            assert not waits or deadline > now_ms
            assert f"{operation.name} expired" not in room.log or deadline <= now_ms
    assert len(room.purgatory) == sum(parked.operation is not None for _, parked, _ in operations)


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
