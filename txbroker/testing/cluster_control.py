"""What the control port of a cluster for tests does: what that of a broker does, for all brokers, and what only a cluster can do.

Rules act on the clients of all brokers, and count their requests together. `cluster_routes.py` has the operations.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred
from twisted.web import http

from txbroker.testing.cluster_brokers import BeforeEnd, ClusterBroker, ClusterBrokers
from txbroker.testing.cluster_moves import ClusterMoves
from txbroker.testing.cluster_routes import CLUSTER_OPERATIONS, FORWARDED_OPERATIONS
from txbroker.testing.control_client import TIMEOUT_S
from txbroker.testing.control_forms import Body, find
from txbroker.testing.control_routes import PAGE_MAX
from txbroker.testing.control_server import Problem
from txbroker.testing.errors import KitError
from txbroker.testing.journal_log import ENTRIES_MAX
from txbroker.testing.openapi import ROOT
from txbroker.testing.rule_set import RULES_MAX
from txbroker.testing.rule_specs import RuleSpec, check_broker
from txbroker.testing.tally import JOURNAL, calls_of, hits_of

FORWARD_TIMEOUT_S = 300.0  # of a move of the clock
HANGS_S = 10.0
LEAST_S = 1e-6  # a rule whose time is over
Entry = Mapping[str, Any]


class _Rule:
    def __init__(self, spec: RuleSpec, given: Any) -> None:
        self.spec = spec
        self.given = given
        self._added_s = time.monotonic()
        self.is_released = False

    def for_now(self) -> Any:
        """The rule for a broker that starts now."""
        if not self.spec.for_seconds:
            return self.given
        return {**self.given, "for_seconds": max(LEAST_S, self.spec.for_seconds - (time.monotonic() - self._added_s))}


class ClusterControl:
    """What the port does, in threads. `make_brokers(before_end, after_start)`; `expire` ends a broker's session."""

    def __init__(
        self,
        make_brokers: Callable[[BeforeEnd, Callable[[ClusterBroker], None]], ClusterBrokers],
        expire: Callable[[ClusterBroker], None],
        in_thread: Callable[..., Deferred[Any]],
    ) -> None:
        self.brokers = make_brokers(self._before_end, self._after_start)
        self.moves = ClusterMoves(self.brokers.view, self.brokers.ids, self._bar)
        self._expire = expire
        self._in_thread = in_thread
        self._rules: dict[int, _Rule] = {}
        self._last_rule = 0
        self._in_scope = False  # of a clock that is ahead
        self._ended: dict[int, dict[int, Entry]] = {}  # entries of brokers that do not answer any more
        self._lock = threading.RLock()

    def handle(self, method: str, path: list[str], query: dict[str, list[str]], body: Body) -> object:
        """A Deferred of the answer; Problem, KitError."""
        if found := find(CLUSTER_OPERATIONS, method, path):
            operation, variables = found
            return self._in_thread(operation.run, self, operation.asked(variables, query, body))
        if found := find(FORWARDED_OPERATIONS, method, path):
            operation, variables = found
            return self._in_thread(self._forwarded, method, operation.path, operation.asked(variables, query, body).body)
        raise Problem(http.NOT_FOUND, f"there is no {method} {'/'.join([ROOT, *path])}; GET {ROOT}/openapi.json has what there is")

    def act(self, broker: int, action: str) -> object:
        """Do this with a broker."""
        return self.brokers.act(broker, action).shown()

    def expire_session(self, broker: int) -> object:
        """End the session of a broker. One that is not paused has another one at once."""
        member = self.brokers.get(broker)
        self._expire(member)
        self.brokers.until_known(f"the end of the session of broker {broker}")
        return member.shown()

    def rules(self) -> list[dict[str, Any]]:
        """The states of all."""
        with self._lock:
            return [self.rule(number) for number in self._rules]

    def add_rule(self, given: Any) -> object:
        """Add a rule to all brokers."""
        with self._lock:
            return self._add(given)

    def _add(self, given: Any) -> object:
        brokers = self._answering()
        if len(self._rules) >= RULES_MAX:
            raise KitError(f"there are {RULES_MAX} rules, and no more are taken: remove some, or reset")
        number = self._last_rule = self._last_rule + 1
        brokers[0].control.put(f"/rules/{number}", given)  # which checks it: only brokers know the requests that they serve
        spec = RuleSpec(**given)
        try:
            check_broker(spec.broker, self.brokers.ids)
            if spec.after:
                self._rule(spec.after)
        except KitError:
            brokers[0].control.delete(f"/rules/{number}")
            raise
        self._rules[number] = _Rule(spec, given)
        self._at_each(lambda broker: broker is brokers[0] or broker.control.put(f"/rules/{number}", given))
        return self.rule(number)

    def rule(self, number: int) -> dict[str, Any]:
        """The state of a rule."""
        rule = self._rule(number)
        held = sum(found["held"] for found in self._at_each(lambda broker: broker.control.get(f"/rules/{number}")).values())
        tally = self.brokers.tally
        return {
            "id": number, "rule": rule.spec.shown(), "calls": tally.get(calls_of(number)), "hits": tally.get(hits_of(number)),
            "held": held, "optional": rule.spec.optional,
        }  # fmt: skip

    def remove_rule(self, number: int) -> object:
        """Remove a rule of all brokers; its last state."""
        with self._lock:
            state = self.rule(number)
            self._at_each(lambda broker: broker.control.delete(f"/rules/{number}"))
            del self._rules[number]
        return {**state, "hits": self.brokers.tally.get(hits_of(number)), "calls": self.brokers.tally.get(calls_of(number)), "held": 0}

    def release_rule(self, number: int) -> object:
        """Release what a rule holds, at all brokers."""
        with self._lock:
            self._rule(number).is_released = True
            self._at_each(lambda broker: broker.control.post(f"/rules/{number}/release"))
            return self.rule(number)

    def _rule(self, number: int) -> _Rule:
        if number not in self._rules:
            raise KitError(f"there is no rule {number}; it may have been removed")
        return self._rules[number]

    def reset(self) -> None:
        """Remove all rules, let all replicas into the ISRs, and have all brokers take connections."""
        self.moves.release()
        with self._lock:
            self._rules.clear()
            for broker in self.brokers.all():
                broker.refuses = False
            self._at_each(lambda broker: broker.control.post("/reset"))

    def _bar(self, topic: str, partition: int, allowed: Any) -> None:
        bar = {"topic": topic, "partition": partition, "allowed": allowed}
        self._at_each(lambda broker: broker.control.post("/isr", bar))

    def _before_end(self, broker: ClusterBroker, *, may_hang: bool) -> None:
        """Keep what its journal has; of one that hangs, only what it has answered in time."""
        kept = self._ended.setdefault(broker.id, {})
        since = 0
        try:
            while page := broker.control.get(f"/journal?since={since}", HANGS_S if may_hang else TIMEOUT_S)["entries"]:
                kept.update((entry["n"], entry) for entry in page)
                since = page[-1]["n"]
        except KitError:
            if not may_hang:
                raise
        for number in sorted(kept)[:-ENTRIES_MAX]:
            del kept[number]

    def _after_start(self, broker: ClusterBroker) -> None:
        """Give it the rules, ISRs and clock of this moment."""
        with self._lock:
            broker.control.post(f"/brokers/{broker.id}/{'refuse' if broker.refuses else 'accept'}")
            there = {each["id"] for each in broker.control.get("/rules")["rules"]}
            for number in there - self._rules.keys():
                broker.control.delete(f"/rules/{number}")
            for number, rule in self._rules.items():
                if number not in there:
                    broker.control.put(f"/rules/{number}", rule.for_now())
                if rule.is_released:
                    broker.control.post(f"/rules/{number}/release")
            broker.is_changing = False  # from now on it gets each new rule
        for (topic, partition), allowed in self.moves.bars.items():
            broker.control.post("/isr", {"topic": topic, "partition": partition, "allowed": allowed})
        self._set_clock(broker)

    def _set_clock(self, broker: ClusterBroker) -> None:
        """The clock of the others may have moved meanwhile, or have come back from a scope."""
        if self._late_ms(broker):
            with suppress(KitError):  # it is in no scope
                broker.control.post("/at/end")
        late_ms = self._late_ms(broker)
        if late_ms > 0:
            broker.control.post("/at" if self._in_scope else "/advance", {"seconds": late_ms / 1000}, FORWARD_TIMEOUT_S)

    def _late_ms(self, broker: ClusterBroker) -> int:
        """By how much its clock is behind that of the others."""
        others = [each for each in self.brokers.answering() if each is not broker]
        return int(others[0].control.get("/clock")["ahead_ms"] - broker.control.get("/clock")["ahead_ms"]) if others else 0

    def journal(self, since: int) -> object:
        """As that of one broker. A page ends where that of a broker does that may have more."""
        entries = {n: entry for kept in list(self._ended.values()) for n, entry in list(kept.items()) if n > since}
        last = self.brokers.tally.get(JOURNAL)
        end = last
        for page in self._at_each(lambda broker: broker.control.get(f"/journal?since={since}")["entries"]).values():
            entries.update((entry["n"], entry) for entry in page)
            if len(page) == PAGE_MAX:
                end = min(end, page[-1]["n"])
        return {"entries": [entries[n] for n in sorted(entries) if n <= end][:PAGE_MAX], "last": last}

    def _forwarded(self, method: str, path: str, body: Any) -> object:
        """An operation of each broker; the answer of the first one that could do it, or of all together if each has a part of it.

        KitError of the first one if none could.
        """
        if path == "/expire" and isinstance(body, dict) and list(body) == ["session"]:
            return self._expire_named(body["session"])
        if path == "/trim":
            return self._leader(body).control.post(path, body)
        answers, problems = {}, []

        def ask(broker: ClusterBroker) -> None:
            try:
                answers[broker.id] = broker.control.get(path) if method == "GET" else broker.control.post(path, body, FORWARD_TIMEOUT_S)
            except KitError as problem:
                problems.append(problem)

        self._at_each(ask)
        if problems and (path != "/expire" or not answers):  # members and transactions are at one of the brokers
            raise problems[0]
        if not answers:
            raise KitError("no broker runs: start one first")
        if path.startswith("/at"):
            self._in_scope = path == "/at"
        if path == "/expire":
            return {"members": [member for broker in sorted(answers) for member in answers[broker]["members"]]}
        if path == "/fill":  # a broker knows the ends of the partitions that it leads
            ends = {number: end for answer in answers.values() for number, end in answer["ends"].items()}
            return {"ends": {number: ends[number] for number in sorted(ends, key=int)}}
        return answers[min(answers)]

    def _answering(self) -> Sequence[ClusterBroker]:
        brokers = self.brokers.answering()
        if not brokers:
            raise KitError("no broker runs: start one first")
        return brokers

    def _leader(self, body: Any) -> ClusterBroker:
        """Of the partition that a body names. A body without one goes to any broker, which refuses it."""
        topic, partition = (body.get("topic"), body.get("partition")) if isinstance(body, dict) else (None, None)
        if not isinstance(topic, str) or not isinstance(partition, int):
            return self._answering()[0]
        leader = self.brokers.view.existing(topic, partition).leader_id
        found = next((each for each in self._answering() if each.id == leader), None)
        if found is None:
            raise KitError(f"{topic}-{partition} has no leader that runs: start or resume its brokers first")
        return found

    def _expire_named(self, session: Any) -> object:
        if not (isinstance(session, str) and session.isascii() and session.isdecimal()):
            raise KitError(f"session is {session!r}; it must be the id of a broker, as text")
        self.expire_session(int(session))
        return {"members": []}

    def _at_each(self, ask: Callable[[ClusterBroker], Any]) -> dict[int, Any]:
        """The answers of the brokers that answer, by id; KitError of the first one that fails and runs."""
        brokers = self.brokers.answering()
        if not brokers:
            return {}
        with ThreadPoolExecutor(len(brokers)) as pool:
            futures = {broker: pool.submit(ask, broker) for broker in brokers}
        found = {}
        for broker, future in futures.items():
            try:
                found[broker.id] = future.result()
            except KitError:
                if broker.answers:  # it has not just ended
                    raise
        return found
