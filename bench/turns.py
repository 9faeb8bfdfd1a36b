"""Measures in turn: each subject once in every round, the last one first in every second round.

So a change of the machine's speed, or a JVM that becomes faster, affects all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.brokers import OthersMeter
from bench.measures import OTHERS, Measure, Outcome


def in_turn(outcome: Outcome, measures: Mapping[str, Measure], rounds: int, pids: Sequence[int] | None) -> None:
    """Add the samples of so many rounds, with the CPU use of other processes than `pids` and this program, unless `pids` is None."""
    order = list(measures.items())
    for number in range(rounds):
        for name, measure in reversed(order) if number % 2 else order:
            others = None if pids is None else OthersMeter(pids)
            sample = measure()
            conditions = {} if others is None else {OTHERS: others.cores()}
            outcome.samples.setdefault(name, []).append({**sample, **conditions})
