"""How far a replay has come in one partition of the target, as a committed offset with metadata, of a group on the target.

It is committed before each batch is sent, and says where the source is before and after the batch. All batches of a partition have the
sequence numbers of one producer: record n of the replay has sequence number n, whatever process writes it. So the broker accepts each
record once, and the last sequence number in the target's log says whether the batch was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from txbroker.client.group_commits import Committed
from txbroker.console.failures import CommandFailed
from txbroker.names import amount

METADATA_MAX = 4096  # offset.metadata.max.bytes by default
SEQUENCES = 2**31
Positions = Mapping[int, int]
"""By partition of the source, the next offset."""


class ReplayProgress(NamedTuple):
    """`source`: what is replayed and how, which must not change. `written`: records before the batch; `in_flight`: of the batch.

    `target_offset`: the batch is in the target's log at this offset or above it, or nowhere.
    """

    source: str
    producer_id: int
    written: int
    in_flight: int
    before: Positions
    after: Positions
    target_offset: int

    def committed(self) -> Committed:
        """To commit; CommandFailed if the metadata is too large."""
        content = {"source": self.source, "producer": self.producer_id, "written": self.written, "in_flight": self.in_flight,
                   "before": sorted(self.before.items()),
                   "after": sorted(item for item in self.after.items() if self.before.get(item[0]) != item[1])}
        text = json.dumps(content, separators=(",", ":"))
        if len(text) > METADATA_MAX:
            raise CommandFailed(f"the positions in {amount(len(self.before), 'partition')} of the source do not fit into an offset's "
                                "metadata; give the target as many partitions as the source has, and specify --partitioner source")
        return Committed(self.target_offset, text)

    @classmethod
    def of(cls, committed: Committed, group: str) -> ReplayProgress:
        """From what is committed; CommandFailed if it is something else."""
        try:
            content = json.loads(committed.metadata)
            before = {int(index): int(offset) for index, offset in content["before"]}
            after = {**before, **{int(index): int(offset) for index, offset in content["after"]}}
            written, in_flight = int(content["written"]), int(content["in_flight"])
            return cls(str(content["source"]), int(content["producer"]), written, in_flight, before, after, committed.offset)
        except (ValueError, TypeError, KeyError):
            raise CommandFailed(f"the group {group} has offsets that are not those of a replay; specify another --id") from None

    def resume(self, found: Iterable[tuple[int, int]]) -> tuple[ReplayProgress, int]:
        """Where to continue, and how many records to leave out there.

        `found`: first sequence number and count of each batch of the producer in the target's log, from `target_offset` on.
        """
        written = max(((first + count - self.written) % SEQUENCES for first, count in found
                       if (first - self.written) % SEQUENCES < SEQUENCES // 2), default=0)
        if written == self.in_flight:  # also if there was no batch
            return self._replace(written=self.written + written, in_flight=0, before=self.after), 0
        # Nothing was written; or more than this batch, by a process that ran beside the one that committed this.
        return self._replace(in_flight=0, after=self.before), written
