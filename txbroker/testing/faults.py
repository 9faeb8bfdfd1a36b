"""The rules and the journal of one broker, and the clock that both use."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from txbroker.testing.journal_log import JournalLog
from txbroker.testing.rule_set import ActiveRule, RuleSet
from txbroker.testing.rule_specs import parse_rule
from txbroker.testing.traffic import TopicIds


class Faults:
    """Shared by the connections and the control port of a broker. `clock`: Twisted's IReactorTime."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.rules = RuleSet()
        self.journal = JournalLog()
        self.ids = TopicIds()
        self._started_s: float = clock.seconds()
        self._connections = 0
        self._waiting: dict[int, list[Callable[[], object]]] = {}

    def now_s(self) -> float:
        """Seconds since the journal began."""
        now_s: float = self.clock.seconds()
        return now_s - self._started_s

    def new_connection(self) -> int:
        """The number of a new connection, from 1 on."""
        self._connections += 1
        return self._connections

    def add(self, given: Any) -> ActiveRule:
        """Add a rule from JSON; KitError."""
        spec = parse_rule(given)
        return self.rules.add(spec, Random(spec.seed))

    def hold(self, rule: ActiveRule, go_on: Callable[[], object]) -> None:
        """Call `go_on` when the rule is released; at once if it has been."""
        if rule.released:
            go_on()
            return
        rule.held += 1
        self._waiting.setdefault(rule.number, []).append(go_on)

    def release(self, number: int) -> ActiveRule:
        """Let go on what a rule holds, and what it would hold from now on; KitError."""
        return self._released(self.rules.get(number))

    def remove(self, number: int) -> ActiveRule:
        """Remove a rule, and let go on what it holds; KitError."""
        return self._released(self.rules.remove(number))

    def reset(self) -> None:
        """Remove all rules."""
        for rule in self.rules.all():
            self.remove(rule.number)

    def _released(self, rule: ActiveRule) -> ActiveRule:
        rule.released = True
        rule.held = 0
        for go_on in self._waiting.pop(rule.number, []):
            go_on()
        return rule
