"""The journal of a broker, as a test reads it: which requests came, and how they were answered."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, overload

from txbroker.testing.checked_calls import checked
from txbroker.testing.control_client import ControlClient
from txbroker.testing.errors import KitError

LOOK_S = 0.01
PARTIAL = ("topics", "partitions", "groups", "transactional_ids", "errors")  # of these a pattern names one element, or all
SINGULAR = {"topic": "topics", "partition": "partitions", "group": "groups", "transactional_id": "transactional_ids", "error": "errors"}


@dataclass(frozen=True)
class Entry:
    """One request. `broker`: the id of the one that got it. `partitions`: as "topic-0". `rule`: the number of the rule that acted on it,
    or 0. `problem`: why the function of `edit` has not changed the answer, or nothing. `errors`: names, of the answer.

    `outcome`: open, answered, none (acks=0), lost (the rule lost the answer) or closed (the connection ended before). Times are
    milliseconds since the start of the broker, and from the request to its answer.
    """

    n: int
    at_ms: float
    broker: int
    connection: int
    client_id: str | None
    api: str
    version: int
    correlation_id: int
    partitions: tuple[str, ...]
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    rule: int
    problem: str
    outcome: str
    errors: tuple[str, ...]
    bytes: int
    ms: float | None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Entry:
        """From JSON."""
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
        return cls(**values)

    def matches(self, **pattern: object) -> bool:
        """Whether it has these values: `api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER"`. KitError for another name.

        Of a list a value names one element, and a tuple all of them: `errors=()` is an answer without an error.
        """
        _check_names(pattern)
        return all(self._has(name, value) for name, value in pattern.items())

    def _has(self, name: str, value: object) -> bool:
        name = SINGULAR.get(name, name)
        found = getattr(self, name)
        return value in found if name in PARTIAL and not isinstance(value, tuple) else bool(found == value)

    def text(self, *, times: bool = True) -> str:
        """One line. Without times, connections and numbers it is the same for the same requests."""
        about = [*self.partitions, *(f"group={group}" for group in self.groups), *(f"txn={each}" for each in self.transactional_ids)]
        place = f"{self.n:>6} {self.at_ms:>9.1f} {self.broker}#{self.connection} " if times else ""
        begin = f"{place}{self.client_id or '-'} "
        errors = f" {','.join(self.errors)}" if self.errors else ""
        rule = f" (rule {self.rule})" if times else " (a rule acted)"
        rule = f"{rule}{f' not edited: {self.problem}' if self.problem else ''}" if self.rule else ""
        took = f" {self.ms:.1f} ms" if times and self.ms is not None else ""
        return f"{begin}{self.api} v{self.version}{''.join(f' {each}' for each in about)}: {self.outcome}{errors}{rule}{took}"


_FIELDS = tuple(field.name for field in fields(Entry))


def _check_names(pattern: Mapping[str, object]) -> None:
    for name in pattern:
        if SINGULAR.get(name, name) not in _FIELDS:
            raise KitError(f"an entry of the journal has no {name!r}; use one of {', '.join([*_FIELDS, *SINGULAR])}")


@checked
class Entries(Sequence[Entry]):
    """Entries in the order in which the requests arrived."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)

    def where(self, **pattern: object) -> Entries:
        """Those that match (`Entry.matches`); KitError for a name that entries do not have, also if there are none."""
        _check_names(pattern)
        return Entries(entry for entry in self if entry.matches(**pattern))

    def in_order(self, *patterns: Mapping[str, object]) -> bool:
        """Whether there are entries that match these patterns one after the other; others may be between them."""
        rest = iter(self)
        return all(any(entry.matches(**pattern) for entry in rest) for pattern in patterns)

    def text(self, *, times: bool = True) -> str:
        """A line for each."""
        return "\n".join(entry.text(times=times) for entry in self)

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> Entries: ...

    def __getitem__(self, index: int | slice) -> Entry | Entries:
        return Entries(self._entries[index]) if isinstance(index, slice) else self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __repr__(self) -> str:
        return f"<journal\n{self.text()}\n>"


@checked
class Journal:
    """Reads the journal of a broker. The requests of the test kit itself are left out."""

    def __init__(self, control: ControlClient, own_client_id: str) -> None:
        self._control = control
        self._own_client_id = own_client_id

    def last(self) -> int:
        """The number of the last request: for `entries` of what follows."""
        return int(self._control.get("/journal?since=999999999999999")["last"])

    def entries(self, since: int = 0) -> Entries:
        """The requests after this number; of the last 20,000."""
        found: list[Entry] = []
        while page := self._control.get(f"/journal?since={since}")["entries"]:
            found += [Entry.of(each) for each in page if each["client_id"] != self._own_client_id]
            since = page[-1]["n"]
        return Entries(found)

    def where(self, **pattern: object) -> Entries:
        """The requests that match (`Entry.matches`)."""
        return self.entries().where(**pattern)

    def wait_for(self, count: int = 1, timeout_s: float = 10.0, **pattern: object) -> Entries:
        """The requests that match, as soon as there are `count` of them; KitError if there are fewer after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        while len(found := self.where(**pattern)) < count:
            if time.monotonic() > deadline_s:
                raise KitError(f"the journal has {len(found)} of {count} requests with {pattern} after {timeout_s:g} s")
            time.sleep(LOOK_S)
        return found

    def text(self, *, times: bool = True) -> str:
        """A line for each request."""
        return self.entries().text(times=times)
