"""The action queue: what runs when, how often, and what one failure leaves of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.task import Clock

from txbroker.action_queue import ActionQueue


class Turns:
    """A queue, its clock, and the keys in the order in which they were completed."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.actions = ActionQueue(self.clock.callLater)
        self.completed: list[str] = []

    def add(self, key: str, then: Callable[[], None] = lambda: None) -> None:
        def complete(key: str) -> None:
            self.completed.append(key)
            then()

        self.actions.add(key, complete)


def test_each_key_is_completed_once_at_the_end_of_the_turn() -> None:
    turns = Turns()
    turns.actions.begin_turn()
    for key in ("b", "a", "b", "c", "a"):
        turns.add(key)
    turns.clock.advance(10)
    assert turns.completed == []
    assert len(turns.actions) == 3
    turns.actions.end_turn()
    assert turns.completed == ["b", "a", "c"]
    turns.actions.begin_turn()
    turns.add("a")
    turns.actions.end_turn()
    assert turns.completed == ["b", "a", "c", "a"], "in the next turn again"
    assert not turns.clock.getDelayedCalls(), "a turn needs no timer"


def test_outside_of_a_turn_actions_run_in_the_next_iteration() -> None:
    turns = Turns()
    turns.add("a")
    turns.add("a")
    assert turns.completed == []
    turns.clock.advance(0)
    assert turns.completed == ["a"]
    turns.add("b")
    turns.clock.advance(0)
    assert turns.completed == ["a", "b"]


def test_what_actions_add_runs_in_the_same_turn() -> None:
    turns = Turns()

    def add_more() -> None:
        turns.add("a")
        turns.add("b")

    turns.actions.begin_turn()
    turns.add("a", add_more)
    turns.add("c")
    turns.actions.end_turn()
    assert turns.completed == ["a", "c", "a", "b"]
    assert not turns.clock.getDelayedCalls()
    assert len(turns.actions) == 0


def test_an_action_that_fails_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    turns = Turns()
    turns.actions.begin_turn()
    turns.add("a")
    turns.add("broken", fail)
    turns.add("c")
    turns.actions.end_turn()
    assert turns.completed == ["a", "broken", "c"]
    assert "a bug" in caplog.text and "broken" in caplog.text
    turns.add("d")
    turns.clock.advance(0)
    assert turns.completed[-1] == "d"


def test_a_turn_that_ends_before_its_timer_leaves_nothing_for_it() -> None:
    turns = Turns()
    turns.add("a")
    turns.actions.begin_turn()
    turns.add("b")
    turns.actions.end_turn()
    assert turns.completed == ["a", "b"]
    turns.clock.advance(0)
    assert turns.completed == ["a", "b"]
