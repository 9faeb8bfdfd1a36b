"""What is known of a partition: its replicas as they were after the last step, and what has once been committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.invariants.compaction import CompactedTruth
from simulation.invariants.open_transactions import OpenTransactions
from txbroker.cluster.partition import Partition


class Seen(NamedTuple):
    """A replica, as it was after the last step of its process."""

    is_leader: bool
    leader_epoch: int
    high_watermark: int
    end: int
    start: int


@dataclass(slots=True)
class Replica:
    """A replica in one process. `checked`: up to this offset its records are compared with the truth. `loaded`: its end at the start."""

    partition: Partition
    seen: Seen
    checked: int
    loaded: int


class Committed(NamedTuple):
    """A batch that was below a high watermark."""

    last_offset: int
    leader_epoch: int
    crc: int


@dataclass(slots=True)
class Truth:
    """One partition of one topic id. `ends`: the highest high watermark of each leader epoch; `leaders`: who led in it."""

    batches: dict[int, Committed] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    transactions: OpenTransactions = field(default_factory=OpenTransactions)
    compacted: CompactedTruth = field(default_factory=CompactedTruth)  # if the log cleaner runs
    checked: int = 0  # up to this offset there are all batches

    def end_before(self, epoch: int) -> int:
        """What was committed in earlier epochs."""
        return max((end for other, end in self.ends.items() if other < epoch), default=0)
