"""Committed offsets: what a group fetches is what was committed last, as far as real time says which one that is."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator

from simulation.histories.anomaly import Anomaly
from simulation.histories.index import History
from simulation.histories.operations import NO_OFFSET, Commit, End, FetchedCommit, Outcome


class _Attempt:
    """A commit as far as it may have an effect: when it may have had it first, and the time by which it had, None if that is not known."""

    def __init__(self, commit: Commit, end: End | None) -> None:
        self.offset = commit.offset
        self.began = commit.began
        outcome, ended = commit.outcome, commit.ended
        if commit.transaction is not None and outcome is not Outcome.FAILED:
            committed = end is not None and end.committed
            outcome = Outcome.FAILED if end is None or not committed else end.outcome if outcome is Outcome.OK else Outcome.UNKNOWN
            self.began, ended = (end.began, end.ended) if end is not None else (commit.began, commit.ended)
        self.possible = outcome is not Outcome.FAILED
        self.ended = ended if outcome is Outcome.OK else None


def _first_fetched(all_fetched: Iterable[FetchedCommit]) -> dict[int, int]:
    """When the first fetch of each offset had ended."""
    ends: dict[int, int] = {}
    for fetched in all_fetched:
        ends[fetched.offset] = min(fetched.ended, ends.get(fetched.offset, fetched.ended))
    return ends


def check(history: History) -> Iterator[Anomaly]:
    """lost-commit, unexpected-commit.

    An offset may be fetched if it was committed before the fetch ended, and no other commit came after that one and ended before the
    fetch began. A commit without an answer may take effect at any later time; one that is fetched has done so.
    """
    for (group, of), all_fetched in history.fetched.items():
        name = f"{group} {of[0]}-{of[1]}"
        attempts = [_Attempt(commit, history.ends.get(commit.transaction or "")) for commit in history.commits.get((group, of), ())]
        attempts = [attempt for attempt in attempts if attempt.possible]
        by_offset: dict[int, list[_Attempt]] = defaultdict(list)
        for attempt in attempts:
            by_offset[attempt.offset].append(attempt)
        sure = [(attempt.ended, attempt.began, attempt.offset) for attempt in attempts if attempt.ended is not None]
        for offset, fetched_end in sorted(_first_fetched(all_fetched).items()):
            if len(by_offset[offset]) == 1 and by_offset[offset][0].ended is None:
                sure.append((fetched_end, by_offset[offset][0].began, offset))
        sure.sort()
        ends = [ended for ended, _, _ in sure]
        last: list[tuple[int, int]] = []  # of the commits up to each one, the latest beginning, and its offset
        for _, began, offset in sure:
            last.append(max(last[-1], (began, offset)) if last else (began, offset))
        for fetched in all_fetched:
            before = bisect_left(ends, fetched.began)
            since, latest = last[before - 1] if before else (0, NO_OFFSET)
            known = [attempt for attempt in by_offset[fetched.offset] if attempt.began < fetched.ended]
            if fetched.offset != NO_OFFSET and not known:
                yield Anomaly("unexpected-commit", name, f"{fetched.client} fetched {fetched.offset}, which was not committed before")
            elif before and not any(attempt.ended is None or attempt.ended >= since for attempt in known):
                yield Anomaly("lost-commit", name, f"{fetched.client} fetched {fetched.offset} at {fetched.began}, "
                                                   f"and the commit of {latest}, which began at {since}, had been confirmed")
