"""The audit log: who logged in or failed to, what was denied, what was changed, and, if configured, what principals use.

Each line is a JSON object: `time` (UTC), `broker` (its id), `event` (a `Kind`), who (`principal`, `client_id`, `host` as Java prints it,
`port`, `listener`), what (`api`, `operation`, `resource_type`, `resource`), `outcome`, and for decisions `decided_by` and `acl`. A client
cannot make it grow without end, and cannot hide what others do: a denial or login that is repeated within a minute is counted, and so is
what exceeds a number of different ones of a principal at an address. No line has a secret: values come from `admin_log`, which hides them,
and reasons of failed logins are texts of this broker.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from txbroker.clock import Clock, DelayedCall
from txbroker.security.acl_index import Rule
from txbroker.security.acl_model import AclOperation, AclResource
from txbroker.security.principals import java_address

REPEATS_S = 60.0  # what is repeated within this time is counted
DISTINCT_MAX = 200  # lines of one kind and one source within this time, those of changes excepted
LINES_MAX = 5000  # of all sources within this time; beyond it a source has one line of each kind
SOURCES_MAX = 5000  # principals at addresses, by kind, within this time
USES_MAX = 50_000  # of a period
USES_OF_ONE_MAX = 5000  # of these, of a principal at an address
TEXT_MAX = 1000  # bytes in a line of a client id or a name: clients choose them
CUT = "…(cut)"  # the end of a text that was longer


class Kind(StrEnum):
    """What can be recorded, by the names that txbroker.audit.events and the lines have."""

    DENIAL = "denial"
    LOGIN = "login"
    LOGIN_FAILURE = "login_failure"
    CHANGE = "change"
    USE = "use"


class Subject(Protocol):
    """The session of a client."""

    @property
    def principal(self) -> str: ...

    @property
    def peer_host(self) -> str: ...

    @property
    def peer_port(self) -> int: ...

    @property
    def listener(self) -> str: ...


def shortened(text: str) -> str:
    """The text, or its beginning with CUT after it, so that it has at most TEXT_MAX bytes in a line and CUT."""
    kept, size = text[:TEXT_MAX], 0
    if not (kept.isascii() and kept.isprintable()):
        for at, character in enumerate(kept):
            size += len(json.dumps(character)) - 2
            if size > TEXT_MAX:
                kept = kept[:at]
                break
    return text if len(kept) == len(text) else kept + CUT


class _Source(NamedTuple):
    """Of one kind of events. `principal`: None for logins that have failed."""

    kind: Kind
    principal: str | None
    host: str


class _Repeated:
    """A line, and how often its event came again since."""

    __slots__ = ("count", "line")

    def __init__(self, line: dict[str, Any]) -> None:
        self.line = line
        self.count = 0


class AuditTrail:
    """Makes lines of events. For use in the reactor's thread.

    `write` takes a line, and neither waits nor raises. `is_broker` says whether a session is one of brokers, whose logins and uses are not
    recorded. `use_period_s`: how often a use that goes on is recorded. `api_name`: of an API key. `own_topic`: the topic of the lines: that
    a broker may not write them there is not recorded, which would make another line.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        kinds: Collection[Kind],
        clock: Clock,
        now_ms: Callable[[], int],
        broker_id: int,
        *,
        is_broker: Callable[[Subject], bool],
        use_period_s: float,
        own_topic: str | None = None,
    ) -> None:
        self._write = write
        self._kinds = frozenset(kinds)
        self._clock = clock
        self._now_ms = now_ms
        self._broker_id = broker_id
        self._is_broker = is_broker
        self._use_period_s = use_period_s
        self._own_topic = own_topic
        self._seen: dict[_Source, dict[Hashable, _Repeated]] = {}
        self._distinct = 0  # lines in these
        self._not_seen: Counter[_Source] = Counter()
        self._used: set[tuple[str, str, int, str]] = set()
        self._used_by: Counter[_Source] = Counter()
        self._timers: dict[str, DelayedCall] = {}
        self.lines: Counter[Kind] = Counter()
        """How many were written, by kind."""
        self.left_out: Counter[Kind] = Counter()
        """Events without a line of their own, by kind: repeated ones, and those beyond the limits."""
        self.records_use = Kind.USE in self._kinds
        self.api_name: Callable[[int], str] = str

    def denied(
        self, client: Subject, client_id: str | None, api: str, operation: AclOperation, resource: AclResource, name: str, rule: Rule
    ) -> None:
        """A client may not do what it requested."""
        own_line = operation is AclOperation.WRITE and resource is AclResource.TOPIC and name == self._own_topic  # of this log
        if Kind.DENIAL in self._kinds and not (own_line and self._is_broker(client)):
            what = {"api": api, **_decision(operation, resource, name), "outcome": "denied", **_rule(rule)}
            key = api, operation, resource, shortened(name)
            self._limited(_source(Kind.DENIAL, client), key, {**_who(client, client_id), **what})

    def denied_more(self, client: Subject) -> None:
        """A request has more denied resources than are recorded one by one."""
        if Kind.DENIAL in self._kinds:
            self._leave_out(_source(Kind.DENIAL, client))

    def used(
        self,
        client: Subject,
        client_id: str | None,
        api: str,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        decide: Callable[[], Rule],
    ) -> None:
        """A client has used a right; for a trail that records use. `decide`: returns the rule."""
        key = client.principal, client.peer_host, operation << 4 | resource, name if len(name) <= TEXT_MAX else shortened(name)
        if key in self._used or operation is AclOperation.CLUSTER_ACTION or self._is_broker(client):
            return
        source = _source(Kind.USE, client)
        if len(self._used) >= USES_MAX or self._used_by[source] >= USES_OF_ONE_MAX:
            self._leave_out(source)
            return
        self._used.add(key)
        self._used_by[source] += 1
        self._after(self._use_period_s, "uses", self._forget_uses)
        what = {"api": api, **_decision(operation, resource, name), "outcome": "allowed", **_rule(decide())}
        self._put(Kind.USE, {**_who(client, client_id), **what})

    def _forget_uses(self) -> None:
        self._used.clear()
        self._used_by.clear()

    def logged_in(self, client: Subject, client_id: str | None, mechanism: str) -> None:
        """A client has proved who it is."""
        if Kind.LOGIN in self._kinds and not self._is_broker(client):
            key = client.listener, mechanism
            self._limited(_source(Kind.LOGIN, client), key, {**_who(client, client_id), "mechanism": mechanism, "outcome": "succeeded"})

    def login_failed(self, client: Subject, client_id: str | None, mechanism: str, user: str, cause: str, reason: str) -> None:
        """A client has not. `user`: whom it claims to be, empty if it has not said so; `reason`: a text of this broker."""
        if Kind.LOGIN_FAILURE in self._kinds:
            what = {"mechanism": mechanism or None, "claimed_user": shortened(user) or None, "outcome": "failed", "cause": cause,
                    "reason": shortened(reason)}  # fmt: skip
            key = client.listener, mechanism, shortened(user), cause
            self._limited(_Source(Kind.LOGIN_FAILURE, None, client.peer_host), key, {**_who(client, client_id), "principal": None, **what})

    def changed(
        self,
        client: Subject,
        client_id: str | None,
        api_key: int,
        what: str,
        resource_type: str,
        name: str,
        details: Mapping[str, Any],
        *,
        repeats: bool = False,
    ) -> None:
        """A client has changed something. `what`: such as "created"; `details` have no secrets. `repeats`: clients do it all the time."""
        if Kind.CHANGE not in self._kinds:
            return
        line = {**_who(client, client_id), "api": self.api_name(api_key), "operation": what, "resource_type": resource_type,
                "resource": shortened(name), "outcome": "succeeded", **({"details": details} if details else {})}  # fmt: skip
        if repeats:
            self._limited(_source(Kind.CHANGE, client), (what, resource_type, shortened(name)), line)
        else:
            self._put(Kind.CHANGE, line)

    def stop(self) -> None:
        """Write the numbers of repeated events now."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers = {}
        self._count()

    def _limited(self, source: _Source, key: Hashable, line: dict[str, Any]) -> None:
        seen = self._seen.get(source)
        if seen is None and len(self._seen) < SOURCES_MAX:
            seen = self._seen[source] = {}
        if seen is not None and key in seen:
            seen[key].count += 1
            self.left_out[source.kind] += 1
        elif seen is None or len(seen) >= DISTINCT_MAX or (seen and self._distinct >= LINES_MAX):
            self._leave_out(source)
        else:
            seen[key] = _Repeated(line)
            self._distinct += 1
            self._put(source.kind, line)
            self._after(REPEATS_S, "repeats", self._count)

    def _leave_out(self, source: _Source) -> None:
        self.left_out[source.kind] += 1
        if source not in self._not_seen and len(self._not_seen) >= SOURCES_MAX:
            source = _Source(source.kind, None, "")
        self._not_seen[source] += 1
        self._after(REPEATS_S, "repeats", self._count)

    def _count(self) -> None:
        """Write how often each event was repeated, and begin again."""
        seen, self._seen, self._distinct = self._seen, {}, 0
        for source, of_source in seen.items():
            for repeated in of_source.values():
                if repeated.count:
                    self._put(source.kind, {**repeated.line, "repeated": repeated.count})
        not_seen, self._not_seen = self._not_seen, Counter()
        for source, count in not_seen.items():
            of_whom = {"principal": source.principal, "host": java_address(source.host)} if source.host else {}
            self._put(source.kind, {**of_whom, "left_out": count})

    def _put(self, kind: Kind, line: Mapping[str, Any]) -> None:
        self.lines[kind] += 1
        time = datetime.fromtimestamp(self._now_ms() / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._write(json.dumps({"time": time, "broker": self._broker_id, "event": kind, **line}).encode() + b"\n")

    def _after(self, seconds: float, name: str, call: Callable[[], None]) -> None:
        """Once, however often it is requested until then."""

        def run() -> None:
            del self._timers[name]
            call()

        if name not in self._timers:
            self._timers[name] = self._clock.callLater(seconds, run)


def _source(kind: Kind, client: Subject) -> _Source:
    return _Source(kind, client.principal, client.peer_host)


def _who(client: Subject, client_id: str | None) -> dict[str, Any]:
    return {
        "principal": client.principal,
        "client_id": None if client_id is None else shortened(client_id),
        "host": java_address(client.peer_host),
        "port": client.peer_port,
        "listener": client.listener,
    }


def _decision(operation: AclOperation, resource: AclResource, name: str) -> dict[str, Any]:
    return {"operation": operation.title, "resource_type": resource.title, "resource": shortened(name)}


def _rule(rule: Rule) -> dict[str, Any]:
    return {"decided_by": rule.by, "acl": None if rule.acl is None else str(rule.acl)}
