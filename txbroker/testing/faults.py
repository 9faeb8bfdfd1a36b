"""The rules and the journal of one broker, and the clock that both use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from txbroker.testing.edit_calls import EditCalls, RemoteEdits
from txbroker.testing.journal_log import JournalLog
from txbroker.testing.kafka_releases import Release
from txbroker.testing.rule_set import ActiveRule, RuleSet
from txbroker.testing.rule_specs import check_broker, parse_rule
from txbroker.testing.tally import Tally
from txbroker.testing.traffic import TopicIds


class Gate:
    """While it is closed, requests of clients wait."""

    def __init__(self) -> None:
        self.is_closed = False
        self._waiting: list[Callable[[], object]] = []

    def close(self) -> None:
        """Requests wait from now on."""
        self.is_closed = True

    def wait(self, go_on: Callable[[], object]) -> None:
        """Call `go_on` when it is open."""
        self._waiting.append(go_on)

    def open(self) -> None:
        """Let all requests pass."""
        self.is_closed = False
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()


class ClientPorts(Protocol):
    """The listeners for clients (`fault_ports.py`)."""

    refuses: bool

    def refuse_clients(self) -> None:
        """Close the connections, and refuse new ones."""

    def accept_clients(self) -> None:
        """Take connections again."""


class ClosableConnection(Protocol):
    """One of a client (`fault_protocol.py`)."""

    def close(self) -> None:
        """Close it."""


class Faults:
    """Shared by the connections and the control port of a broker. `clock`: Twisted's IReactorTime, monotonic. `now_ms`: the broker's wall
    clock.

    `tally`: that of a cluster, whose journals began at `started_s`. `shown_release`: of Kafka, that clients see, None for its own.
    """

    def __init__(
        self, clock: Any, now_ms: Callable[[], int], broker_id: int = 0, tally: Tally | None = None, started_s: float | None = None
    ) -> None:
        tally = tally or Tally()
        self.clock = clock
        self.now_ms = now_ms
        self.broker_id = broker_id
        self.rules = RuleSet(broker_id, tally, self)
        self.journal = JournalLog(broker_id, tally)
        self.ids = TopicIds()
        self.edits: EditCalls = RemoteEdits(clock)
        self.shown_release: Release | None = None
        self.is_alone = started_s is None
        self._started_s: float = clock.seconds() if started_s is None else started_s
        self.ports: ClientPorts  # once the broker listens
        self.open: set[ClosableConnection] = set()
        self.gate = Gate()
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

    def close_connections(self) -> None:
        """Close those of all clients."""
        for connection in list(self.open):
            connection.close()

    def add(self, given: Any, number: int = 0) -> ActiveRule:
        """Add a rule from JSON; KitError. `number`: that of the cluster."""
        spec = parse_rule(given)
        if self.is_alone:
            check_broker(spec.broker, [self.broker_id])
        return self.rules.add(spec, number)

    def hold(self, rule: ActiveRule, go_on: Callable[[], object]) -> None:
        """Call `go_on` when the rule is released; at once if it has been."""
        if rule.released:
            go_on()
            return
        rule.held += 1
        self._waiting.setdefault(rule.number, []).append(go_on)

    def release(self, number: int) -> ActiveRule:
        """Release what a rule holds, and what it would hold from now on; KitError."""
        return self._released(self.rules.get(number))

    def remove(self, number: int) -> ActiveRule:
        """Remove a rule, and release what it holds; KitError."""
        removed = self._released(self.rules.remove(number))
        self.edits.end(number)
        return removed

    def reset(self) -> None:
        """Remove all rules, and take connections again."""
        self.ports.accept_clients()
        for rule in self.rules.all():
            self.remove(rule.number)

    def _released(self, rule: ActiveRule) -> ActiveRule:
        rule.released = True
        rule.held = 0
        for go_on in self._waiting.pop(rule.number, []):
            go_on()
        return rule
