"""The rules of a broker: which one acts on a request. No I/O; chance comes from the seeds of the rules."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from txbroker.testing.errors import KitError
from txbroker.testing.rule_specs import RuleSpec
from txbroker.testing.traffic import Subject

RULES_MAX = 1000


class ActiveRule:
    """A rule with its counts: `calls` that it matched, `hits` on which it acted, `held` requests or answers that wait for a release."""

    def __init__(self, number: int, spec: RuleSpec, random: Random, after: ActiveRule | None) -> None:
        self.number = number
        self.spec = spec
        self.calls = 0
        self.hits = 0
        self.held = 0
        self.released = False
        self._random = random
        self._after = after

    def matches(self, api: str, client_id: str | None, subject: Subject) -> bool:
        """Whether a request is one of those that this rule is about."""
        spec = self.spec
        if (spec.api and spec.api != api) or (spec.client_id and spec.client_id != client_id):
            return False
        if spec.group and spec.group not in subject.groups:
            return False
        if spec.transactional_id and spec.transactional_id not in subject.transactional_ids:
            return False
        return not spec.topic or any(
            topic == spec.topic and (spec.partition < 0 or partition == spec.partition) for topic, partition in subject.partitions
        )

    def counts(self) -> bool:
        """A request matches: count it, and say whether the rule is to act on it."""
        if self._after is not None and not self._after.hits:
            return False
        self.calls += 1
        spec = self.spec
        if spec.trigger == "times":
            return self.hits < spec.count
        if spec.trigger == "on_call":
            return self.calls == spec.count
        return spec.trigger == "always" or self._random.random() < spec.probability

    def state(self) -> dict[str, object]:
        """For JSON."""
        return {"id": self.number, "rule": self.spec.shown(), "calls": self.calls, "hits": self.hits, "held": self.held,
                "optional": self.spec.optional}  # fmt: skip


class RuleSet:
    """Rules in the order in which they were added: the first one that is to act on a request does."""

    def __init__(self) -> None:
        self._rules: dict[int, ActiveRule] = {}
        self._last = 0

    def add(self, spec: RuleSpec, random: Random) -> ActiveRule:
        """Add a rule; KitError. `random` has the seed of the rule."""
        if len(self._rules) >= RULES_MAX:
            raise KitError(f"there are {RULES_MAX} rules, and no more are taken: remove some, or reset")
        after = None
        if spec.after:
            after = self.get(spec.after)
        self._last += 1
        rule = self._rules[self._last] = ActiveRule(self._last, spec, random, after)
        return rule

    def get(self, number: int) -> ActiveRule:
        """A rule; KitError if there is none with this number."""
        if number not in self._rules:
            raise KitError(f"there is no rule {number}; it may have been removed")
        return self._rules[number]

    def remove(self, number: int) -> ActiveRule:
        """Remove a rule; KitError."""
        rule = self.get(number)
        del self._rules[number]
        return rule

    def all(self) -> Iterable[ActiveRule]:
        """Those that are there, the oldest first."""
        return list(self._rules.values())

    def choose(self, api: str, client_id: str | None, subject: Subject) -> ActiveRule | None:
        """The rule that acts on this request, if any. Every rule that matches it counts it."""
        chosen = None
        for rule in self._rules.values():
            if rule.matches(api, client_id, subject) and rule.counts() and chosen is None:
                chosen = rule
        if chosen is not None:
            chosen.hits += 1
        return chosen
