"""What the control port does with the broker itself: its clock, and what ends or changes by request. `broker_routes.py` has the forms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock

from txbroker.broker.components import Components
from txbroker.broker.service import Broker
from txbroker.testing import expiry
from txbroker.testing.due_work import DueWork
from txbroker.testing.errors import KitError
from txbroker.testing.faults import Faults
from txbroker.testing.log_operations import FILL_MAX, LogOperations
from txbroker.testing.moved_clock import MovedClock
from txbroker.testing.snapshots import Snapshots

T = TypeVar("T")

VALUE_MAX = 1_000_000  # bytes

SECONDS = "it must be a number of seconds, 0 or more: a clock cannot go back"


class Operations:
    """One at a time, in the order of the requests."""

    def __init__(self, reactor: Any, clock: MovedClock, faults: Faults) -> None:
        self._reactor = reactor
        self._clock = clock
        self._faults = faults
        self._components: Components | None = None
        self._logs: LogOperations | None = None
        self._snapshots: Snapshots | None = None
        self._due: DueWork | None = None
        self._lock: Any = DeferredLock()
        self._work = {
            "/clock": self._clock_state,
            "/advance": self._advance,
            "/at": self._begin_scope,
            "/at/end": self._end_scope,
            "/expire": self._expire,
            "/roll": self._roll,
            "/fill": self._fill,
            "/compact": self._compact,
            "/trim": self._trim,
            "/truncate": self._truncate,
            "/recreate": self._recreate,
            "/snapshot": self._snapshot,
            "/restore": self._restore,
        }

    def keep(self, snapshots: Snapshots) -> None:
        """What takes snapshots."""
        self._snapshots = snapshots

    def serve(self, broker: Broker) -> None:
        """The broker serves clients."""
        assert broker.components is not None
        self._components = broker.components
        self._due = DueWork(self._reactor, self._clock, broker.components)
        self._logs = LogOperations(self._reactor, self._clock, self._faults, broker.components)

    def run(self, path: str, body: Any) -> Deferred[object]:
        """Fires with the answer, or fails with KitError."""
        work: Any = self._work[path]
        if body is not None and not isinstance(body, dict):
            raise KitError("the body must be a JSON object")
        done: Deferred[object] = self._lock.run(lambda: Deferred.fromCoroutine(work(body or {})))
        return done

    async def _clock_state(self, body: Mapping[str, Any]) -> object:
        _fields(body)
        return self._state()

    async def _advance(self, body: Mapping[str, Any]) -> object:
        due, by_ms = self._serving(self._due), _milliseconds(body)
        self._clock.advance(by_ms)
        return await self._show(due)

    async def _begin_scope(self, body: Mapping[str, Any]) -> object:
        due, by_ms = self._serving(self._due), _milliseconds(body)
        if not by_ms:
            raise KitError("seconds is 0: a scope of at() must be ahead")
        self._clock.begin_scope(by_ms)
        return await self._show(due)

    async def _end_scope(self, body: Mapping[str, Any]) -> object:
        _fields(body)
        due = self._serving(self._due)
        self._clock.end_scope()
        due.went_back()
        return self._state()

    async def _show(self, due: DueWork) -> object:
        problems = await due.show()
        if problems:
            raise KitError(f"the clock has moved, but not all that fell due has happened: {'; '.join(problems)}")
        return self._state()

    def _state(self) -> object:
        return {"now_ms": self._clock.now_ms(), "ahead_ms": self._clock.shown_ms}

    async def _expire(self, body: Mapping[str, Any]) -> object:
        _fields(body, "topic", "group", "member", "transaction", "session")
        components = self._serving(self._components)
        names = {key: _text(body, key) for key in body}
        match sorted(key for key, name in names.items() if name):
            case ["group"] | ["group", "member"] | ["member"]:
                return {"members": expiry.members(components, names.get("group", ""), names.get("member", ""))}
            case ["transaction"]:
                await expiry.transaction(self._reactor, components, names["transaction"])
                return {"members": []}
            case ["topic"]:
                await self._serving(self._logs).expire(names["topic"])
                return {"members": []}
            case ["session"]:
                raise KitError("there is no session to expire: this broker is alone, and only brokers of a cluster have one")
        raise KitError("name what expires: a topic, or a group or a member or both, or a transaction, or a session")

    async def _roll(self, body: Mapping[str, Any]) -> object:
        _fields(body, "topic")
        await self._serving(self._logs).roll(_required(body, "topic"))
        return {}

    async def _fill(self, body: Mapping[str, Any]) -> object:
        _fields(body, "topic", "count", "size")
        topic, count, size = _required(body, "topic"), _number(body, "count", FILL_MAX), _number({"size": 100, **body}, "size", VALUE_MAX)
        ends = await self._serving(self._logs).fill(topic, count, size)
        return {"ends": {str(partition): end for partition, end in ends.items()}}

    async def _compact(self, body: Mapping[str, Any]) -> object:
        _fields(body, "topic")
        await self._serving(self._logs).compact(_required(body, "topic"))
        return {}

    async def _trim(self, body: Mapping[str, Any]) -> object:
        _fields(body, "topic", "partition", "before")
        topic, partition = _required(body, "topic"), _number(body, "partition", 2**31 - 1)
        before = -1 if body.get("before", -1) == -1 else _number(body, "before", 2**63 - 1)
        return {"start": await self._serving(self._logs).trim(topic, partition, before)}

    async def _truncate(self, body: Mapping[str, Any]) -> object:
        _fields(body, "topic", "partition", "to")
        topic, partition, to = _required(body, "topic"), _number(body, "partition", 2**31 - 1), _number(body, "to", 2**63 - 1)
        self._alone()
        end, epoch = await self._serving(self._logs).truncate(topic, partition, to)
        return {"end": end, "leader_epoch": epoch}

    async def _recreate(self, body: Mapping[str, Any]) -> object:
        _fields(body, "topic")
        self._alone()
        await self._serving(self._logs).recreate(_required(body, "topic"))
        return {}

    async def _snapshot(self, body: Mapping[str, Any]) -> object:
        _fields(body, "to")
        self._serving(self._components)
        await self._alone().take(_required(body, "to"))
        return {}

    async def _restore(self, body: Mapping[str, Any]) -> object:
        _fields(body, "from")
        self._serving(self._components)
        await self._alone().restore(_required(body, "from"))
        return {}

    def _alone(self) -> Snapshots:
        if self._snapshots is None:
            raise KitError("a cluster cannot truncate, recreate_topic, snapshot and restore: take Kafka() with one broker for that")
        return self._snapshots

    def _serving(self, part: T | None) -> T:
        if part is None:
            raise KitError("the broker does not serve clients yet: wait until it is ready")
        return part


def _fields(body: Mapping[str, Any], *known: str) -> None:
    unknown = sorted(set(body) - set(known))
    if unknown:
        raise KitError(f"the body has {', '.join(unknown)}; it may have {', '.join(known) or 'nothing'}")


def _milliseconds(body: Mapping[str, Any]) -> int:
    _fields(body, "seconds")
    seconds = body.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
        raise KitError(f"seconds is {seconds!r}; {SECONDS}")
    return round(seconds * 1000)


def _required(body: Mapping[str, Any], key: str) -> str:
    text = _text({key: "", **body}, key)
    if not text:
        raise KitError(f"the body has no {key}")
    return text


def _number(body: Mapping[str, Any], key: str, at_most: int) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= at_most:
        raise KitError(f"{key} is {value!r}; it must be a number from 0 to {at_most}")
    return value


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body[key]
    if not isinstance(value, str):
        raise KitError(f"{key} is {value!r}; it must be text")
    return value
