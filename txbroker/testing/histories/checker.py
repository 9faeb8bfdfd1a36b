"""All rules over one history."""

from __future__ import annotations

from collections.abc import Iterable

from txbroker.testing.histories import commits, completeness, logs, reading, sending
from txbroker.testing.histories.anomaly import Anomaly
from txbroker.testing.histories.index import History
from txbroker.testing.histories.operations import Operation

_RULES = (logs.check, sending.check, reading.check, completeness.check, commits.check)


def check(operations: Iterable[Operation]) -> list[Anomaly]:
    """The anomalies of a whole history, in an order that depends on the history alone. ValueError if the history contradicts itself."""
    history = History(operations)
    return sorted({anomaly for rule in _RULES for anomaly in rule(history)})
