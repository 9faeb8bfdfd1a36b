"""What the control port of a broker does beside its operations: what the server of its cluster asks for, and advice for a broker alone."""

from __future__ import annotations

from typing import Any

from txbroker.testing.control_forms import Body
from txbroker.testing.control_routes import as_number
from txbroker.testing.control_server import Control
from txbroker.testing.errors import KitError
from txbroker.testing.operations import Operations
from txbroker.testing.served_broker import Served

PROCESS_ACTIONS = ("kill", "stop", "start", "pause", "resume", "expire")
_MORE = "use brokers=2 or more (--brokers)"


class MemberControl(Control):
    """What the port does."""

    def __init__(self, served: Served, operations: Operations) -> None:
        super().__init__(served.faults, operations)
        self._served = served

    def handle(self, method: str, path: list[str], query: dict[str, list[str]], body: Body) -> object:
        """See `Control`."""
        faults = self._served.faults
        if faults.is_alone:
            _refuse_alone(method, path)
        elif method == "PUT" and path[:1] == ["rules"] and len(path) == 2:  # a rule with the number that it has in the cluster
            return faults.add(body(True), as_number(path[1])).state()
        elif (method, *path) == ("POST", "isr"):
            return self._set_isr(body(True))
        return super().handle(method, path, query, body)

    def _set_isr(self, body: Any) -> object:
        """Keep other replicas than `allowed` out of the ISR of a partition; None: no more."""
        bars = self._served.bars
        if bars is None:
            raise KitError("the broker has not started yet")
        if body["allowed"] is None:
            bars.remove(body["topic"], body["partition"])
        else:
            bars.set(body["topic"], body["partition"], body["allowed"])
        return {}


def _refuse_alone(method: str, path: list[str]) -> None:
    match (method, *path):
        case ("POST", "leaders" | "coordinators"):
            raise KitError(f"a broker alone leads everything: {_MORE} to move it")
        case ("POST", "isr"):
            raise KitError(f"a broker alone is the whole ISR: {_MORE} to shrink it")
        case ("POST", "brokers", _, action) if action in PROCESS_ACTIONS:
            raise KitError(f"a broker alone cannot {action} itself by its control port: {_MORE}, or signals")
