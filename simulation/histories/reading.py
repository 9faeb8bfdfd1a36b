"""What a consumer receives: ascending offsets, from the position of its assignment on, and no record left out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from simulation.histories.anomaly import Anomaly
from simulation.histories.index import History
from simulation.histories.operations import NO_OFFSET, Assign, Poll


def check(history: History) -> Iterator[Anomaly]:
    """nonmonotonic-poll, int-nonmonotonic-poll, poll-skip, int-poll-skip."""
    for (_, of), steps in history.reading.items():
        log = history.logs[of]
        position = NO_OFFSET
        for step in steps:
            if isinstance(step, Assign):
                position = step.position
            else:
                yield from _poll(step, position, log.expected[step.read_committed], f"{of[0]}-{of[1]}")
                position = step.records[-1][0] + 1 if step.records else position


def _poll(poll: Poll, position: int, expected: list[int], name: str) -> Iterator[Anomaly]:
    """One poll of a client whose next offset is `position`, if that is known. A poll has at most one anomaly between any two records."""
    kind = ""
    for offset, value in poll.records:
        if position != NO_OFFSET and offset < position:
            yield Anomaly(f"{kind}nonmonotonic-poll", name, f"{poll.client} received {value} at offset {offset} when it was at {position}")
        elif position != NO_OFFSET and offset > position:
            first, end = bisect_left(expected, position), bisect_left(expected, offset)
            if first < end:
                yield Anomaly(f"{kind}poll-skip", name, f"{poll.client} received {value} at offset {offset} when it was at {position}, "
                                                        f"without {end - first} records, the first of them at offset {expected[first]}")
        position = offset + 1
        kind = "int-"
