"""All rules over one history."""

from __future__ import annotations

from collections.abc import Iterable

from simulation.histories import commits, completeness, logs, reading, sending
from simulation.histories.anomaly import Anomaly
from simulation.histories.index import History
from simulation.histories.operations import Operation

_RULES = (logs.check, sending.check, reading.check, completeness.check, commits.check)


def check(operations: Iterable[Operation]) -> list[Anomaly]:
    """The anomalies of a whole history, in an order that depends on the history alone. ValueError if the history contradicts itself."""
    history = History(operations)
    return sorted({anomaly for rule in _RULES for anomaly in rule(history)})
