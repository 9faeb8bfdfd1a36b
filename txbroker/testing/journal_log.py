"""The journal of a broker: its last requests, what they were about, and how they were answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from txbroker.testing.tally import JOURNAL, Tally
from txbroker.testing.traffic import NAMES_MAX, Subject

ENTRIES_MAX = 20_000
OPEN = "open"  # not answered yet


class Call:
    """One request. `outcome`: open, answered, none (a request without an answer), lost, closed. `rule`: the one that acted on it, or 0.

    `problem`: why the function of the rule has not changed the answer, or nothing.
    """

    __slots__ = ("answered_s", "api", "broker", "bytes", "client_id", "connection", "correlation_id", "errors", "number", "outcome",
                 "problem", "rule", "started_s", "subject", "version")  # fmt: skip

    def __init__(
        self, number: int, started_s: float, broker: int, connection: int, api: str, version: int, correlation_id: int,
        client_id: str | None, subject: Subject, rule: int,
    ) -> None:  # fmt: skip
        self.number = number
        self.broker = broker
        self.started_s = started_s
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.subject = subject
        self.rule = rule
        self.problem = ""
        self.outcome = OPEN
        self.errors: list[str] = []
        self.bytes = 0
        self.answered_s = 0.0

    def as_json(self) -> dict[str, object]:
        """For the control port. Times are milliseconds since the start of the journal, and of the request."""
        partitions = [topic if number < 0 else f"{topic}-{number}" for topic, number in self.subject.partitions[:NAMES_MAX]]
        return {
            "n": self.number,
            "at_ms": round(self.started_s * 1000, 1),
            "broker": self.broker,
            "connection": self.connection,
            "client_id": self.client_id,
            "api": self.api,
            "version": self.version,
            "correlation_id": self.correlation_id,
            "partitions": partitions,
            "topics": list(dict.fromkeys(topic for topic, _ in self.subject.partitions))[:NAMES_MAX],
            "groups": list(self.subject.groups[:NAMES_MAX]),
            "transactional_ids": list(self.subject.transactional_ids[:NAMES_MAX]),
            "rule": self.rule,
            "problem": self.problem,
            "outcome": self.outcome,
            "errors": self.errors,
            "bytes": self.bytes,
            "ms": round((self.answered_s - self.started_s) * 1000, 1) if self.answered_s else None,
        }


class JournalLog:
    """The last ENTRIES_MAX calls. Numbers begin with 1 and have no gaps; in a cluster all brokers share them."""

    def __init__(self, broker_id: int, tally: Tally) -> None:
        self._broker_id = broker_id
        self._tally = tally
        self._calls: deque[Call] = deque(maxlen=ENTRIES_MAX)

    @property
    def last(self) -> int:
        """The number of the last call."""
        return self._tally.get(JOURNAL)

    def begin(
        self, now_s: float, connection: int, api: str, version: int, correlation_id: int, client_id: str | None, subject: Subject, rule: int
    ) -> Call:
        """A request has arrived."""
        with self._tally.locked():
            number = self._tally.increase(JOURNAL)
        call = Call(number, now_s, self._broker_id, connection, api, version, correlation_id, client_id, subject, rule)
        self._calls.append(call)
        return call

    def since(self, number: int) -> Iterator[Call]:
        """The calls after that number, as far as they are still there."""
        return (call for call in self._calls if call.number > number)
