"""Measures in turn: each subject once in every round, so that a change of the machine's speed affects all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.brokers import OthersMeter
from bench.measures import Measure, Outcome
from bench.report import OTHERS


def in_turn(outcome: Outcome, measures: Mapping[str, Measure], rounds: int, pids: Sequence[int] | None) -> None:
    """Add the samples of so many rounds, with the CPU use of other processes than `pids` and this program, unless `pids` is None."""
    for _ in range(rounds):
        for name, measure in measures.items():
            others = None if pids is None else OthersMeter(pids)
            sample = measure()
            conditions = {} if others is None else {OTHERS: others.cores()}
            outcome.samples.setdefault(name, []).append({**sample, **conditions})
