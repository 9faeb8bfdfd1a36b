"""The order of a log: as one producer sent its records, and, of different producers, as real time had it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from simulation.histories.anomaly import Anomaly
from simulation.histories.index import History, Partition, SeenLog
from simulation.histories.operations import NO_OFFSET, Outcome, Send


def check(history: History) -> Iterator[Anomaly]:
    """nonmonotonic-send."""
    by_partition: dict[Partition, list[Send]] = defaultdict(list)
    by_client: dict[tuple[str, Partition], list[Send]] = defaultdict(list)
    for send in history.sends.values():
        of = (send.topic, send.partition)
        if send.value in history.logs[of].offsets:
            by_partition[of].append(send)
            if send.exact:
                by_client[send.client, of].append(send)
    for (client, of), sends in by_client.items():
        log = history.logs[of]
        sends.sort(key=lambda send: send.number)
        for first, second in pairwise(sends):
            if log.offsets[first.value] > log.offsets[second.value]:
                yield Anomaly("nonmonotonic-send", f"{of[0]}-{of[1]}", f"{client} sent {_place(log, first)} before {_place(log, second)}")
    for of, sends in by_partition.items():
        yield from _real_time(history.logs[of], sends, f"{of[0]}-{of[1]}")


def _real_time(log: SeenLog, sends: list[Send], name: str) -> Iterator[Anomaly]:
    """A record that was confirmed before another one was sent is before it. A repeated value counts once, where it is first."""
    confirmed = sorted((send for send in sends if send.outcome is Outcome.OK), key=lambda send: send.ended)
    place = 0
    last: Send | None = None  # of those confirmed so far, the one with the highest offset
    for send in sorted(sends, key=lambda send: send.began):
        while place < len(confirmed) and confirmed[place].ended < send.began:
            if last is None or log.offsets[confirmed[place].value] > log.offsets[last.value]:
                last = confirmed[place]
            place += 1
        highest = max((log.offsets[send.value], *log.repeats.get(send.value, ())), default=NO_OFFSET)
        if last is not None and log.offsets[last.value] > highest:
            yield Anomaly("nonmonotonic-send", name, f"{_place(log, last)} was confirmed before {_place(log, send)} was sent")


def _place(log: SeenLog, send: Send) -> str:
    return f"{send.value} (offset {log.offsets[send.value]})"
