"""Folded stacks, as profilers write them (`outermost;...;innermost count`), and the time spent in each function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)$")

# A pool thread that waits for work; the profiler reports it as running. One of the two functions is inlined, depending on the interpreter.
_WAITING = re.compile(r"\b(lock_)?PyThread_acquire_lock(_timed)? \(")


@dataclass(frozen=True)
class Spent:
    """One function's share of all samples, 0 to 1: `own` as the innermost frame, `total` anywhere on the stack."""

    function: str
    own: float
    total: float


def _name(frame: str) -> str:
    """A function with its file, without the line."""
    found = _FRAME.match(frame)
    return f"{found['function']} ({found['file']})" if found else frame


def spent(folded: Iterable[str]) -> tuple[int, list[Spent]]:
    """The number of samples of running threads, and the functions, largest own time first."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in folded:
        stack, _, count_text = line.rpartition(" ")
        if not stack or _WAITING.search(stack):
            continue
        count = int(count_text)
        names = [_name(frame) for frame in stack.split(";")]
        own[names[-1]] += count
        for name in set(names):
            total[name] += count
    samples = sum(own.values())
    found = [Spent(name, own[name] / samples, count / samples) for name, count in total.items()]
    return samples, sorted(found, key=lambda function: (-function.own, -function.total, function.function))


def table(functions: Sequence[Spent], rows: int) -> str:
    """Two tables of the first functions: by own time and by total time."""
    by_total = sorted(functions, key=lambda function: (-function.total, function.function))
    return "\n\n".join(
        "\n".join([f"   own   total  {title}", *(f"{f.own:6.1%} {f.total:7.1%}  {f.function}" for f in some[:rows])])
        for title, some in (("function, by own time", functions), ("function, by total time", by_total))
    )
