"""The rules of a broker: which one acts on a request. No I/O; chance comes from the seeds of the rules."""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random
from typing import Protocol

from txbroker.testing.errors import KitError
from txbroker.testing.rule_specs import RuleSpec
from txbroker.testing.tally import Tally, calls_of, hits_of
from txbroker.testing.traffic import Subject

RULES_MAX = 1000


class Clocks(Protocol):
    """Of the broker: monotonic seconds, and milliseconds since 1970."""

    def now_s(self) -> float: ...

    def now_ms(self) -> int: ...


class ActiveRule:
    """A rule with its counts: `calls` that it matched, `hits` on which it acted, `held` requests or answers that wait for a release.

    In a cluster calls and hits are those of all brokers together.
    """

    def __init__(self, number: int, spec: RuleSpec, tally: Tally, clocks: Clocks) -> None:
        self.number = number
        self._clocks = clocks
        self._ends_s = clocks.now_s() + spec.for_seconds if spec.for_seconds else math.inf
        self.spec = spec
        self.held = 0
        self.released = False
        self._tally = tally

    @property
    def calls(self) -> int:
        """The requests that it matched."""
        return self._tally.get(calls_of(self.number))

    @property
    def hits(self) -> int:
        """The requests on which it acted."""
        return self._tally.get(hits_of(self.number))

    def hit(self) -> None:
        """It acts on a request. The tally must be locked."""
        self._tally.increase(hits_of(self.number))

    def missed(self) -> None:
        """It had nothing to change in the answer, so that it has not acted."""
        with self._tally.locked():
            self._tally.increase(hits_of(self.number), -1)

    @property
    def has_ended(self) -> bool:
        """Whether its time is over."""
        until_ms = self.spec.until_ms
        return self._clocks.now_s() >= self._ends_s or (until_ms >= 0 and self._clocks.now_ms() >= until_ms)

    def matches(self, broker_id: int, api: str, version: int, client_id: str | None, subject: Subject) -> bool:
        """Whether a request is one of those that this rule is about."""
        spec = self.spec
        if spec.broker not in (-1, broker_id) or spec.version not in (-1, version):
            return False
        if (spec.api and spec.api != api) or (spec.client_id and spec.client_id != client_id):
            return False
        if spec.group and spec.group not in subject.groups:
            return False
        if spec.transactional_id and spec.transactional_id not in subject.transactional_ids:
            return False
        return not spec.topic or any(self.chooses(topic, partition) for topic, partition in subject.partitions)

    def chooses(self, topic: str, partition: int) -> bool:
        """Whether it is about this partition, or with -1 about this topic as a whole."""
        spec = self.spec
        return spec.topic in ("", topic) and (spec.partition < 0 or partition in (-1, spec.partition))

    def counts(self) -> bool:
        """A request matches: count it, and say whether the rule is to act on it. The tally must be locked."""
        spec = self.spec
        if spec.after and not self._tally.get(hits_of(spec.after)):
            return False
        call = self._tally.increase(calls_of(self.number))
        if spec.trigger == "times":
            return self.hits < spec.count
        if spec.trigger == "on_call":
            return call == spec.count
        return spec.trigger == "always" or Random(f"{spec.seed} {call}").random() < spec.probability

    def state(self) -> dict[str, object]:
        """For JSON."""
        return {"id": self.number, "rule": self.spec.shown(), "calls": self.calls, "hits": self.hits, "held": self.held,
                "optional": self.spec.optional}  # fmt: skip


class RuleSet:
    """Rules in the order in which they were added: the first one that is to act on a request does."""

    def __init__(self, broker_id: int, tally: Tally, clocks: Clocks) -> None:
        self._broker_id = broker_id
        self._tally = tally
        self._clocks = clocks
        self._rules: dict[int, ActiveRule] = {}
        self._last = 0

    def add(self, spec: RuleSpec, number: int = 0) -> ActiveRule:
        """Add a rule; KitError. `number`: 0 for the next one."""
        if len(self._rules) >= RULES_MAX:
            raise KitError(f"there are {RULES_MAX} rules, and no more are taken: remove some, or reset")
        if spec.after and not number:
            self.get(spec.after)
        self._last = number or self._last + 1
        rule = self._rules[self._last] = ActiveRule(self._last, spec, self._tally, self._clocks)
        return rule

    def get(self, number: int) -> ActiveRule:
        """A rule; KitError if there is none with this number."""
        if number not in self._rules:
            raise KitError(f"there is no rule {number}; it may have been removed")
        return self._rules[number]

    def remove(self, number: int) -> ActiveRule:
        """Remove a rule; KitError."""
        return self._rules.pop(self.get(number).number)

    def all(self) -> Iterable[ActiveRule]:
        """Those that are there, the oldest first."""
        return list(self._rules.values())

    def choose(self, api: str, version: int, client_id: str | None, subject: Subject, *, is_answered: bool = True) -> ActiveRule | None:
        """The rule that acts on this request, if any. Every rule that matches it counts it."""
        matching = [rule for rule in self._rules.values() if rule.matches(self._broker_id, api, version, client_id, subject)]
        matching = [rule for rule in matching if not rule.has_ended]
        if not matching:
            return None
        with self._tally.locked():
            acting = [rule for rule in matching if rule.counts() and (is_answered or not rule.spec.is_about_answers)]
            if acting:
                acting[0].hit()
        return acting[0] if acting else None
