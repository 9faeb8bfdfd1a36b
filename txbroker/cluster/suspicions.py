"""Which registered brokers are suspected to be gone: a machine without I/O. The system resets the connections of
a process that has ended, and refuses new ones, while its session with ZooKeeper goes on.

A broker whose connection to another one was lost, and which is refused twice, reports it. A broker is suspected when two other brokers
report it. A suspicion may be wrong, for example behind a firewall that rejects connections, and must be safe then; these rules keep wrong
ones rare:

- A report counts for one start of the reported broker (its broker epoch), and while the reporting broker is registered.
- If half of the registered brokers or more are reported, none is suspected: the network is divided, not the brokers gone.
- Reports of brokers that are reported themselves by two others do not count, and such a broker suspects none.
- A broker that was suspected in this broker epoch, and trusted again, is suspected again only after HOLD_S, then after twice that time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from txbroker.lazy_dataclass import lazy_dataclass

REPORTS_MIN = 2
HOLD_S = 60.0
HOLD_MAX_S = 3600.0
_NAME = re.compile(r"(\d{1,10})-(\d{1,19})-(\d{1,10})", re.ASCII)


class Report(NamedTuple):
    """The listener of a broker, in this broker epoch, refuses the connections of the broker `by`."""

    broker_id: int
    epoch: int
    by: int

    @property
    def name(self) -> str:
        """The name of its node."""
        return f"{self.broker_id}-{self.epoch}-{self.by}"


def parse_report(name: str) -> Report | None:
    """The report of this name; None for anything else."""
    found = _NAME.fullmatch(name)
    return None if found is None else Report(*map(int, found.groups()))


class Suspicion(NamedTuple):
    """`reported_by`: brokers, in ascending order."""

    epoch: int
    reported_by: tuple[int, ...]


class Changes(NamedTuple):
    """What another look has changed."""

    new: dict[int, Suspicion]
    ended: list[int]


@lazy_dataclass(slots=True)
class FailoverCounts:
    """What has happened since the start."""

    reports: int = 0  # by this broker
    suspicions: int = 0
    reports_on_itself: int = 0


@lazy_dataclass(slots=True)
class _Past:
    """The suspicions of one broker epoch."""

    epoch: int
    count: int
    last_s: float

    @property
    def next_s(self) -> float:
        return self.last_s + min(HOLD_S * 2.0 ** (self.count - 1), HOLD_MAX_S)


class Suspicions:
    """What one broker suspects. `suspected`: by broker id."""

    def __init__(self, own_id: int) -> None:
        self._own_id = own_id
        self.suspected: dict[int, Suspicion] = {}
        self.next_s: float | None = None  # when a broker that is reported now may be suspected again
        self._past: dict[int, _Past] = {}

    def look(self, now_s: float, registered: Mapping[int, int], reports: Iterable[Report]) -> Changes:
        """Look at all reports. `registered`: the broker epochs of all brokers; `now_s` is monotonic."""
        found = self._credible(registered, reports)
        before = self.suspected
        ended = [id_ for id_, suspicion in before.items() if id_ not in found or found[id_].epoch != suspicion.epoch]
        self.suspected, self.next_s = {}, None
        new: dict[int, Suspicion] = {}
        for id_, suspicion in found.items():
            past = self._past.get(id_)
            if id_ in before and id_ not in ended:
                self.suspected[id_] = suspicion
            elif past is not None and past.epoch == suspicion.epoch and now_s < past.next_s:
                self.next_s = past.next_s if self.next_s is None else min(self.next_s, past.next_s)
            else:
                count = past.count + 1 if past is not None and past.epoch == suspicion.epoch else 1
                self._past[id_] = _Past(suspicion.epoch, count, now_s)
                self.suspected[id_] = new[id_] = suspicion
        for id_ in self._past.keys() - registered.keys():
            del self._past[id_]
        return Changes(new, ended)

    def _credible(self, registered: Mapping[int, int], reports: Iterable[Report]) -> dict[int, Suspicion]:
        """The brokers that enough others report."""
        reported: dict[int, set[int]] = defaultdict(set)
        for report in reports:
            if registered.get(report.broker_id) == report.epoch and report.by in registered and report.by != report.broker_id:
                reported[report.broker_id].add(report.by)
        several = {id_ for id_, by in reported.items() if len(by) >= REPORTS_MIN}
        if 2 * len(several) >= len(registered) or self._own_id in several:
            return {}
        left = {id_: tuple(sorted(reported[id_] - several)) for id_ in sorted(several)}
        return {id_: Suspicion(registered[id_], by) for id_, by in left.items() if len(by) >= REPORTS_MIN}
