"""Rules for faults on the clients of a simulated cluster: the rules of a broker for tests (`txbroker/testing/rules.py`), by the same calls.

A function that states rules by `when` takes `SimulatedRules` as well as `txbroker.testing.Kafka`. It is called before the run. Requests of
brokers to each other are no requests of clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

from txbroker.connection.protocol import Connection
from txbroker.testing.control_client import ControlClient
from txbroker.testing.edit_calls import Done
from txbroker.testing.edit_function import EditFunction
from txbroker.testing.errors import KitError
from txbroker.testing.fault_protocol import FaultProtocol
from txbroker.testing.faults import Faults
from txbroker.testing.rule_set import ActiveRule
from txbroker.testing.rule_specs import RuleSpec, parse_rule
from txbroker.testing.rules import Rules, When
from txbroker.testing.tally import Tally, hits_of
from txbroker.transport.interfaces import FrameProtocol


class SimulatedRules:
    """Of a cluster: all brokers have the same rules, and count requests together."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: the date at the start of the run."""
        self._now_ms = now_ms
        self._control = _Control()
        self._functions = _Functions()
        self._rules = Rules(self._control, must_be_scoped=False, functions=self._functions)

    def when(self, api: str = "", **matchers: Any) -> When:
        """As `Kafka.when`."""
        return When(RuleSpec(api=api, **matchers), self._rules, self._now)

    def process(self, broker_id: int, process: Any, now_ms: Callable[[], int]) -> Callable[[FrameProtocol], FrameProtocol]:
        """A process of a broker starts: what puts the rules before the protocol of each of its connections to clients."""
        control = self._control
        if not control.given:
            return lambda protocol: protocol
        faults = Faults(process, now_ms, broker_id, control.tally, 0.0)
        faults.edits = _Edits(process, self._functions)
        for number, given in enumerate(control.given, 1):
            faults.add(given, number)
        return lambda protocol: FaultProtocol(cast(Connection, protocol), faults)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._now_ms() / 1000, UTC)


class _Functions:
    """The functions of `edit`, by the places that rules name."""

    def __init__(self) -> None:
        self._found: dict[str, EditFunction] = {}

    def add(self, function: EditFunction) -> str:
        place = f"0/{len(self._found):032x}"
        self._found[place] = function
        return place

    def remove(self, place: str) -> None:
        self._found.pop(place, None)

    def get(self, place: str) -> EditFunction:
        return self._found[place]


class _Edits:
    """Satisfies `EditCalls`: calls the functions in the next turn of the process."""

    def __init__(self, process: Any, functions: _Functions) -> None:
        self._process = process
        self._functions = functions

    def ask(self, rule: ActiveRule, api: str, version: int, body: memoryview, done: Done) -> None:
        edited = self._functions.get(rule.spec.function).run(api, version, bytes(body))
        self._process.callLater(0, done, *edited)

    def end(self, rule: int) -> None:
        """Rules of the simulation stay."""


class _Control(ControlClient):
    """In the place of the control port of a broker: it keeps the rules for the processes to come, and has their hits."""

    def __init__(self) -> None:
        super().__init__("the simulation")
        self.tally = Tally()
        self.given: list[dict[str, Any]] = []

    def _request(self, method: str, path: str, body: Any = None, timeout_s: float = 0.0) -> Any:
        if (method, path) == ("POST", "/rules"):
            self.given.append(asdict(parse_rule(body)))
            return {"id": len(self.given)}
        if method == "GET":
            return {"hits": self.tally.get(hits_of(int(path.rpartition("/")[2])))}
        raise KitError("a rule of the simulation stays for the whole run: it cannot be removed or released")
