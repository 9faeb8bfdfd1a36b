"""Rules for faults, as a test states them: `kafka.when("Produce", topic=t).on_call(2).error("NOT_LEADER_OR_FOLLOWER")`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from txbroker.errors import ErrorCode
from txbroker.testing.checked_calls import checked
from txbroker.testing.control_client import ControlClient
from txbroker.testing.edit_function import EditFunction
from txbroker.testing.edit_server import EditServer
from txbroker.testing.errors import KitError, NoAnswer, UnmatchedRule
from txbroker.testing.rule_specs import RuleSpec

LOOK_S = 0.01
What = Literal["request", "answer"]
Scope = Literal["partition", "topic", "request"]


class Functions(Protocol):
    """Serves the functions of rules, by places that rules name (`EditServer`)."""

    def add(self, function: EditFunction) -> str:
        """Its place."""

    def remove(self, place: str) -> None:
        """Serve it no more."""


@checked
class When:
    """Which requests a rule is about, and on which of these it acts; the methods that name an action add the rule to the broker.

    Without a trigger the rule acts on the first matching request only, as with `once`.
    """

    def __init__(self, spec: RuleSpec, rules: Rules, now: Callable[[], datetime], trigger: str = "", after: Rule | None = None) -> None:
        """`now`: the date of the broker. `trigger`: the method that has set the trigger, if one has."""
        self._spec = spec
        self._rules = rules
        self._now = now
        self._trigger = trigger
        self._after = after

    def once(self) -> When:
        """Act on the first matching request."""
        return self._on("once", trigger="times", count=1)

    def times(self, count: int) -> When:
        """Act on the first `count` matching requests."""
        return self._on("times", trigger="times", count=count)

    def on_call(self, number: int) -> When:
        """Act on the matching request with this number, from 1 on."""
        return self._on("on_call", trigger="on_call", count=number)

    def always(self) -> When:
        """Act on all matching requests."""
        return self._on("always", trigger="always")

    def with_probability(self, probability: float, seed: int = 0) -> When:
        """Act on a matching request with this probability. The same seed chooses the same ones of the same requests."""
        return self._on("with_probability", trigger="probability", probability=float(probability), seed=seed)

    def after(self, other: Rule) -> When:
        """Match only requests after the first one on which the other rule has acted. It is a rule of the same broker."""
        if self._after is not None:
            raise KitError(f"after() is called twice: remove one of them, or add after() to the rule {self._after}")
        self._rules.check_same_broker(other)
        found = self._with(after=other.number)
        found._after = other
        return found

    def for_seconds(self, seconds: float) -> When:
        """Match only requests within so many seconds from the time at which the rule is added, as the clients' clocks run."""
        if seconds <= 0:
            raise KitError(f"for_seconds is {seconds:g}; it must be more than 0")
        return self._with(for_seconds=float(seconds))

    def until(self, moment: datetime | timedelta) -> When:
        """Match only requests before a date of the broker's clock, which `Kafka.advance` moves; a timedelta counts from now on."""
        end = self._now() + moment if isinstance(moment, timedelta) else moment
        if end.tzinfo is None:
            raise KitError(f"until has the date {end} without a time zone: use one as of datetime.now(timezone.utc), or a timedelta")
        return self._with(until_ms=round(end.timestamp() * 1000))

    def optional(self) -> When:
        """It is no error if the rule never acts."""
        return self._with(optional=True)

    def error(self, code: ErrorCode | str, *, at: Scope | None = None) -> Rule:
        """Answer with this error, by its name in Kafka, in place of the work.

        It is the error of the partitions that the rule is about; the broker handles the other partitions of the request. `at`: the error
        code of another scope, of topics or of the request; without it the smallest scope that the answer has. An answer of a version
        without such an error code stays as it is, and the rule has not acted.

        Metadata has the brokers nevertheless. Its error is that of the topic, unless the rule names a partition or `at` another scope.
        """
        return self._act("error", error=code.name if isinstance(code, ErrorCode) else code, at=at or "")

    def delay(self, seconds: float, *, of: What = "answer") -> Rule:
        """Hold back the answer, or the request before the broker gets it, for so long."""
        return self._act("delay", seconds=float(seconds), of=of)

    def hold(self, *, of: What = "request") -> Rule:
        """Hold back the request before the broker gets it, or the answer, until `Rule.release`."""
        return self._act("hold", of=of)

    def read_slowly(self, bytes_per_second: int) -> Rule:
        """Take the request at this rate: the broker gets it so much later, and what the client sends meanwhile stays in the sockets."""
        return self._act("read_slowly", bytes_per_second=bytes_per_second)

    def disconnect(self) -> Rule:
        """Close the connection in place of the work."""
        return self._act("disconnect")

    def lose_answer(self) -> Rule:
        """Do the work, and close the connection in place of the answer."""
        return self._act("lose_answer")

    def blackhole(self) -> Rule:
        """From this request on the connection stays open, and nothing on it is handled or answered."""
        return self._act("blackhole")

    def duplicate(self) -> Rule:
        """Send the answer twice."""
        return self._act("duplicate")

    def truncate(self, to: int) -> Rule:
        """Send the first `to` bytes of the answer, its size first, and close the connection."""
        return self._act("truncate", size=to)

    def slice(self, size: int) -> Rule:
        """Send the answer in pieces of `size` bytes."""
        return self._act("slice", size=size)

    def throttle(self, milliseconds: int) -> Rule:
        """Answer with this throttle time (throttle_time_ms): a client sends nothing on the connection for so long (KIP-219).

        An answer in a version without throttle times stays as it is, and the rule has not acted.
        """
        return self._act("throttle", milliseconds=milliseconds)

    def corrupt(self) -> Rule:
        """Change a byte of the records in an answer to Fetch: the CRC of their batch is wrong. Answers without records do not count."""
        return self._act("corrupt")

    def edit(self, changes: Mapping[str, Any] | Callable[[Any], Any], *, timeout_s: float = 10.0) -> Rule:
        """Change the broker's answer: fields of it, or anything by a function.

        A mapping has their new values: `{"topics[name=orders].partitions[partition_index=0].leader_id": -1}`. A path has the names of
        Kafka's message schemas in snake_case. A list without brackets stands for all of its elements; `[2]` is the third one, and
        `[name=orders]` those with this value. A field that ends with error_code takes the name of an error, a uuid the text of a topic id,
        bytes a text in base64, a list its elements, and an element an object with its fields. An answer that has none of the fields, or
        a version without them, stays as it is, and the rule has not acted.

        A function gets the decoded answer (`txbroker.wire.messages`), changes it and returns None, or returns another one of its class.
        It runs in a thread of this process; functions run one after the other. If it raises, returns something else, or has not returned
        after `timeout_s`, the client gets the original answer, and EditError is raised by the rule or at its end.
        """
        if isinstance(changes, Mapping):
            return self._act("edit", edit=dict(changes))
        if timeout_s <= 0:
            raise KitError(f"timeout_s is {timeout_s:g}; it must be more than 0")
        return self._rules.add(replace(self._spec, action="edit", seconds=float(timeout_s)), changes)

    def _on(self, method: str, **trigger: object) -> When:
        if self._trigger:
            raise KitError(f"{method}() is called after {self._trigger}(): a rule has one of them; add another rule for the other requests")
        found = self._with(**trigger)
        found._trigger = method
        return found

    def _with(self, **changes: object) -> When:
        spec = replace(self._spec, **changes)  # type: ignore[arg-type]  # the methods above have the types
        return When(spec, self._rules, self._now, self._trigger, self._after)

    def _act(self, action: str, **details: object) -> Rule:
        return self._rules.add(replace(self._spec, action=action, **details))  # type: ignore[arg-type]


@checked
class Rule:
    """A rule of a broker. In a with statement it is removed at the end, and UnmatchedRule is raised if it has never acted."""

    def __init__(
        self, control: ControlClient, spec: RuleSpec, number: int, removed: Callable[[Rule], None], function: EditFunction | None
    ) -> None:
        self.number = number
        self.function = function  # of edit
        self.place = spec.function
        self.control_url = control.url  # of the process that has the rule
        self._control = control
        self._spec = spec
        self._removed = removed
        self._last_hits: int | None = None  # once it is removed
        self.has_ended = False  # with the process of its broker, or removed by HTTP

    @property
    def hits(self) -> int:
        """On how many requests it has acted; KitError if it has ended: its broker was stopped or killed, or HTTP has removed it.

        EditError if its function has failed since the last time.
        """
        if self.has_ended:
            self.check_function()
            raise KitError(f"the rule {self} has ended, with its broker or by a reset: ask for its hits before that, or add another rule")
        hits = int(self._control.get(f"/rules/{self.number}")["hits"]) if self._last_hits is None else self._last_hits
        self.check_function()
        return hits

    def wait(self, count: int = 1, timeout_s: float = 10.0) -> None:
        """Return when the rule has acted on `count` requests; KitError if it has not after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        while (hits := self.hits) < count:
            if time.monotonic() > deadline_s:
                raise KitError(f"the rule {self} has acted on {hits} of {count} requests after {timeout_s:g} s")
            time.sleep(LOOK_S)

    def release(self) -> None:
        """Release what the rule holds back, and hold nothing any more."""
        self._control.post(f"/rules/{self.number}/release")

    def remove(self) -> None:
        """Remove the rule, and release what it holds back. Without effect if it was removed, here or by HTTP."""
        if self._last_hits is None and not self.has_ended:
            try:
                self._last_hits = int(self._control.delete(f"/rules/{self.number}")["hits"])
            except KitError:
                if self._is_there():
                    raise
                self.has_ended = True
            self._removed(self)

    def _is_there(self) -> bool:
        try:
            self._control.get(f"/rules/{self.number}")
        except NoAnswer:
            pass  # that is not known
        except KitError:
            return False
        return True

    def check(self) -> None:
        """UnmatchedRule if it has never acted and is not optional; EditError."""
        self.check_function()
        if not self._spec.optional and not self.has_ended and not self.hits:
            raise UnmatchedRule(f"the rule {self} has never acted: correct what it matches, or add .optional()")

    def check_function(self) -> None:
        """EditError if its function has failed since the last time."""
        if self.function is not None and (error := self.function.take_error()) is not None:
            raise error

    def __str__(self) -> str:
        return self._spec.shown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()
        if kind is None:
            self.check()


class Rules:
    """The rules that this process has added to a broker. `must_be_scoped`: the broker has clients of other processes of the test run.

    `functions`: of rules, in place of those that run in this process for a broker in another one.
    """

    def __init__(self, control: ControlClient, *, must_be_scoped: bool, functions: Functions | None = None) -> None:
        self._control = control
        self._must_be_scoped = must_be_scoped
        self._functions = EditServer() if functions is None else functions
        self._own: dict[int, Rule] = {}
        self._ended: list[Rule] = []  # with functions, whose errors the test may not have got

    def add(self, spec: RuleSpec, change: Callable[[Any], Any] | None = None) -> Rule:
        """Add a rule, with the function that changes answers if there is one; KitError."""
        if self._must_be_scoped and not spec.is_scoped:
            problem = "the processes of pytest-xdist share this broker, and the rule would act on the clients of other tests"
            advice = "name a topic, group, client_id or transactional_id, or use txbroker_factory or --txbroker-per-worker"
            raise KitError(f"{problem}: {advice}")
        function = None
        if change is not None:
            function = EditFunction(change, spec.shown(), spec.seconds)
            spec = replace(spec, function=self._functions.add(function))
        try:
            number = int(self._control.post("/rules", asdict(spec))["id"])
        except BaseException:
            self._functions.remove(spec.function)
            raise
        rule = self._own[number] = Rule(self._control, spec, number, self._forget, function)
        return rule

    def check_same_broker(self, rule: Rule) -> None:
        """KitError if the rule is not one of this broker."""
        if rule.control_url != self._control.url:
            problem = f"the rule {rule} is of another one, or of the time before its last start"
            raise KitError(f"after() needs a rule of the same broker: {problem}")

    def forget(self) -> None:
        """The broker has ended, and its rules with it."""
        for rule in list(self._own.values()):
            rule.has_ended = True
            self._forget(rule)

    def end(self, *, check: bool) -> None:
        """Remove all of them; with `check` EditError if a function has failed, and UnmatchedRule if a rule has never acted.

        KitError of the first one that cannot be removed. The next call leaves out that one.
        """
        rules = list(self._own.values())
        self._own.clear()
        problems = []
        for rule in rules:
            try:
                rule.remove()
            except KitError as problem:
                problems.append(problem)
                self._forget(rule)
        self.check_ended(check=check)
        if problems:
            raise problems[0]
        if check:
            for rule in rules:
                rule.check()

    def check_ended(self, *, check: bool = True) -> None:
        """EditError if the function of a rule has failed that has ended; without `check` they are forgotten."""
        ended, self._ended = self._ended, []
        if check:
            for rule in ended:
                rule.check_function()

    def close(self, *, check: bool) -> None:
        """Run no function any more; with `check` EditError if one has failed. The rules stay."""
        for rule in self._own.values():
            self._functions.remove(rule.place)
            if check:
                rule.check_function()

    def _forget(self, rule: Rule) -> None:
        self._own.pop(rule.number, None)
        self._functions.remove(rule.place)
        if rule.function is not None:
            self._ended.append(rule)
