"""The form of a rule, as JSON has it, and its checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from txbroker.errors import ErrorCode
from txbroker.names import similar_names
from txbroker.testing.edit_frames import PLACE
from txbroker.testing.edited_fields import parse_edits
from txbroker.testing.error_scopes import SCOPES, scopes_of
from txbroker.testing.errors import KitError
from txbroker.testing.traffic import has_field, has_partitions, request_classes
from txbroker.wire.schema import field_types, response_class

ACTIONS = (
    "error", "delay", "hold", "disconnect", "lose_answer", "blackhole", "duplicate", "truncate", "slice", "throttle", "corrupt", "edit",
    "read_slowly",
)  # fmt: skip
TRIGGERS = ("times", "on_call", "always", "probability")
NAME_LENGTH_MAX = 1000
COUNT_MAX = 1_000_000
DELAY_S_MAX = 3600.0
PORT_MAX = 65535
DURATION_S_MAX = 86_400.0
KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "an object"}
# What happens to an answer; a request with acks=0 has none.
OF_ANSWERS = ("lose_answer", "duplicate", "truncate", "slice", "throttle", "corrupt", "edit")


@dataclass(frozen=True, kw_only=True)
class RuleSpec:
    """A rule: which requests it matches, which of these it acts on, and what it does.

    An empty matcher matches every request. `count`: of `times` and `on_call`. `size`: bytes, of `truncate` and `slice`. `after`: the
    number of a rule that must have acted before. `for_seconds`: how long it matches, 0 without end; `until_ms`: the date of the broker's
    clock at which that ends, -1 for none. `of`: whether `delay` and `hold` hold back the request or the answer. `at`: the scope of
    `error`, empty for the smallest one of the answer. `milliseconds`: of `throttle`. `version`: of the request, -1 for all. `edit`: the
    new values of fields of the answer, by their paths (`edited_fields.py`). `function`: in the place of `edit`, where the function is that
    changes the answer (`edit_frames.py`); the answer waits for it for at most `seconds`. `bytes_per_second`: of `read_slowly`.
    """

    api: str = ""
    topic: str = ""
    partition: int = -1
    broker: int = -1
    version: int = -1
    group: str = ""
    client_id: str = ""
    transactional_id: str = ""
    trigger: str = "times"
    count: int = 1
    probability: float = 1.0
    seed: int = 0
    after: int = 0
    for_seconds: float = 0.0
    until_ms: int = -1
    action: str = ""
    error: str = ""
    at: str = ""
    seconds: float = 0.0
    size: int = 0
    milliseconds: int = 0
    edit: Mapping[str, Any] | None = None
    function: str = ""
    bytes_per_second: int = 0
    of: str = "answer"
    optional: bool = False

    @property
    def is_about_answers(self) -> bool:
        """Whether nothing happens to a request that is not answered."""
        return self.action in OF_ANSWERS or (self.action in ("delay", "hold") and self.of == "answer")

    @property
    def is_scoped(self) -> bool:
        """Whether it names what belongs to one test."""
        return bool(self.topic or self.group or self.client_id or self.transactional_id)

    def shown(self) -> str:
        """The rule in one line, for errors."""
        named = ("topic", "partition", "broker", "version", "group", "client_id", "transactional_id")
        matchers = [f"{name}={getattr(self, name)!r}" for name in named if getattr(self, name) not in ("", -1)]
        numbers = {"times": self.count, "on_call": self.count, "probability": self.probability}
        trigger = f"{self.trigger}({numbers[self.trigger]})" if self.trigger in numbers else self.trigger
        return f"{self.api or 'any request'}({', '.join(matchers)}) {trigger}: {self.action} {self.error}".strip()


def parse_rule(given: Any) -> RuleSpec:
    """A rule from JSON; KitError with what is wrong."""
    if not isinstance(given, Mapping):
        raise KitError("a rule must be a JSON object")
    types: dict[str, type] = {**{field.name: type(field.default) for field in fields(RuleSpec)}, "edit": dict}
    for name, value in given.items():
        if name == "edit" and value is None:
            continue
        if name not in types:
            raise KitError(f"a rule has no {name!r}{_suggestion(name, types)}")
        allowed = (int, float) if types[name] is float else (types[name],)
        if not isinstance(value, allowed) or (isinstance(value, bool) and types[name] is not bool):
            raise KitError(f"{name} of a rule is {value!r}; it must be {KINDS[types[name]]}")
        if isinstance(value, str) and len(value) > NAME_LENGTH_MAX:
            raise KitError(f"{name} of a rule has more than {NAME_LENGTH_MAX} characters")
    spec = RuleSpec(**given)
    _check(spec)
    return spec


def _check(spec: RuleSpec) -> None:
    _one_of("action", spec.action, ACTIONS)
    _one_of("trigger", spec.trigger, TRIGGERS)
    _one_of("of", spec.of, ("request", "answer"))
    if spec.action == "error":
        _check_error(spec.error)
    if spec.function:
        _check_function(spec)
    if spec.action in ("truncate", "slice") and not (1 if spec.action == "slice" else 0) <= spec.size <= COUNT_MAX:
        raise KitError(f"the size of {spec.action} is {spec.size}; it must be a number of bytes")
    if not (math.isfinite(spec.seconds) and 0 <= spec.seconds <= DELAY_S_MAX):
        raise KitError(f"the delay is {spec.seconds} seconds; it must be from 0 to {DELAY_S_MAX:g}")
    if not 0 <= spec.milliseconds <= DELAY_S_MAX * 1000:
        raise KitError(f"the throttle time is {spec.milliseconds} ms; it must be from 0 to {DELAY_S_MAX * 1000:g}")
    if not (math.isfinite(spec.for_seconds) and 0 <= spec.for_seconds <= DURATION_S_MAX):
        raise KitError(f"a rule for {spec.for_seconds:g} seconds is not possible; it must be more than 0, and at most {DURATION_S_MAX:g}")
    if spec.until_ms < -1:
        raise KitError(f"until_ms is {spec.until_ms}; it must be milliseconds since 1970, or -1")
    if spec.action == "read_slowly" and not 1 <= spec.bytes_per_second <= COUNT_MAX:
        raise KitError(f"{spec.bytes_per_second} bytes a second cannot be read; it must be from 1 to {COUNT_MAX}")
    if spec.action == "corrupt" and spec.api != "Fetch":
        raise KitError("corrupt changes a record batch, which only Fetch answers have: name Fetch, or use truncate or slice")
    if not 1 <= spec.count <= COUNT_MAX:
        raise KitError(f"{spec.trigger} is {spec.count}; it must be from 1 to {COUNT_MAX}")
    if not 0 <= spec.probability <= 1:
        raise KitError(f"the probability is {spec.probability}; it must be from 0 to 1")
    for name, number in (("partition", spec.partition), ("version", spec.version)):
        if number < -1:
            raise KitError(f"the {name} is {number}; it must be 0 or more, or not given")
    if spec.partition >= 0 and not spec.topic:
        raise KitError(f"a rule for partition {spec.partition} needs a topic")
    if spec.version >= 0 and not spec.api:
        raise KitError(f"a rule for version {spec.version} needs the name of a request: each request has versions of its own")
    if spec.at:
        _one_of("scope", spec.at, SCOPES)
        if spec.action != "error":
            raise KitError(f"a rule with the action {spec.action} has no scope: remove at={spec.at!r}, which is for errors")
    _check_api(spec)


def _check_function(spec: RuleSpec) -> None:
    place = PLACE.fullmatch(spec.function)
    is_place = place is not None and int(place["port"]) <= PORT_MAX
    if spec.action != "edit" or spec.edit is not None or not is_place or not spec.seconds:
        raise KitError("the function of a rule is for the Python package txbroker.testing: use the action edit with paths and values")


def _check_error(error: str) -> None:
    if error == ErrorCode.NONE.name:
        raise KitError("NONE is the code of an answer without an error: remove the rule, or name another error")
    if error not in ErrorCode.__members__:
        suggestion = _suggestion(error, ErrorCode.__members__)
        raise KitError(f"there is no error {error!r}{suggestion}; use a name of Kafka's class Errors")


def _check_api(spec: RuleSpec) -> None:
    """A rule that can never match is an error."""
    if not spec.api:
        if spec.action == "edit":
            raise KitError("edit changes the fields of an answer: name the request whose answer it is")
        return
    known = request_classes(spec.api)
    if spec.api not in known:
        raise KitError(f"there is no request {spec.api!r}{_suggestion(spec.api, known)}; use a name of Kafka's protocol guide")
    versions = known[spec.api].versions
    if spec.version >= 0 and spec.version not in versions:
        raise KitError(f"a rule for {spec.api} of version {spec.version} never matches: it has the versions {versions}")
    if spec.action == "edit":
        if not spec.function:
            parse_edits(response_class(known[spec.api]), spec.edit or {})
    elif spec.edit is not None:
        raise KitError(f"a rule with the action {spec.action} has no edit: use the action edit")
    scopes = scopes_of(response_class(known[spec.api]))
    if spec.at and spec.at not in scopes:
        own = " or ".join(f"at={each!r}" for each in SCOPES if each in scopes)
        raise KitError(f"an answer to {spec.api} has no error of a {spec.at}: use {own or 'disconnect'}")
    if spec.action == "throttle" and "throttle_time_ms" not in field_types(response_class(known[spec.api])):
        raise KitError(f"an answer to {spec.api} has no throttle time: use delay")
    for matcher in ("topic", "group", "transactional_id"):
        if getattr(spec, matcher) and not has_field(known[spec.api], matcher):
            raise KitError(f"a rule for {spec.api} with a {matcher} never matches: the request has none; remove the {matcher}")
    if spec.partition >= 0 and not any(map(has_partitions, (known[spec.api], response_class(known[spec.api])))):
        raise KitError(f"a rule for {spec.api} cannot be about a partition: it is about whole topics; remove the partition")


def check_broker(broker: int, brokers: Sequence[int]) -> None:
    """KitError unless a rule for this broker can match; -1 is any broker."""
    if broker not in (-1, *brokers):
        raise KitError(f"there is no broker {broker}; {known_brokers(brokers)}")


def known_brokers(brokers: Sequence[int]) -> str:
    """Which brokers there are."""
    return f"the brokers are {', '.join(map(str, brokers))}" if len(brokers) > 1 else f"the only one is {brokers[0]}"


def _one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        article = f"{name!r}" if name == "of" else f"the {name}"
        raise KitError(f"{article} of a rule is {value!r}; it must be one of {', '.join(allowed)}")


def _suggestion(name: str, known: Iterable[str]) -> str:
    found = similar_names(name, known)
    return f" (did you mean {found[0]}?)" if found else ""
