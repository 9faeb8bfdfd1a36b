"""What a mirror has done and what it is doing: a line for its log, and a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from txbroker.mirror.batches import Tally
from txbroker.mirror.partition import PartitionCopy, State
from txbroker.mirror.service import Mirror
from txbroker.names import amount

SHOWN_MAX = 3


class Status:
    """Rates are those since the line before. `seconds` of a monotonic clock."""

    def __init__(self, mirror: Mirror, seconds: float) -> None:
        self._mirror = mirror
        self._started_s = self._shown_s = seconds
        self._records = 0
        self._bytes = 0

    def line(self, seconds: float) -> str:
        """`6 partitions, 1,000 records/s, 1.0 MB/s, lag 0 offsets`, and what is paused or stopped."""
        copies = list(self._mirror.topics.partitions.values())
        records, size = sum(copy.tally.records for copy in copies), sum(copy.bytes for copy in copies)
        elapsed_s = max(seconds - self._shown_s, 0.001)
        text = (
            f"{amount(len(copies), 'partition')}, {(records - self._records) / elapsed_s:,.0f} records/s, "
            f"{(size - self._bytes) / elapsed_s / 1e6:,.1f} MB/s, lag {amount(sum(copy.lag for copy in copies), 'offset')}"
        )
        self._records, self._bytes, self._shown_s = records, size, seconds
        for state in (State.PAUSED, State.STOPPED):
            found = [str(copy) for copy in copies if copy.state is state]
            if found:
                text += f", {len(found)} {state.name.lower()} ({', '.join(found[:SHOWN_MAX])}{', ...' if len(found) > SHOWN_MAX else ''})"
        for cluster in (self._mirror.reader, self._mirror.writer):
            if cluster.problem:
                text += f"; {cluster.problem}"
        return text

    def report(self, seconds: float) -> dict[str, Any]:
        """Everything, for --json. Fields are only added in later versions."""
        mirror = self._mirror
        copies = sorted(mirror.topics.partitions.values(), key=lambda copy: copy.partition)
        total = Tally()
        for copy in copies:
            total.add(copy.tally)
        groups = {} if mirror.groups is None else mirror.groups.statuses
        return {
            "name": mirror.settings.name,
            "source_cluster": mirror.source.cluster_id,
            "target_cluster": mirror.target.cluster_id,
            "same_offsets": mirror.settings.same_offsets,
            "seconds": round(seconds - self._started_s, 3),
            "records": total.records,
            "bytes": sum(copy.bytes for copy in copies),
            "batches": asdict(total),
            "states": dict(Counter(copy.state.name.lower() for copy in copies)),
            "partitions": [_partition(copy) for copy in copies],
            "refused": dict(mirror.topics.refused),
            "groups": {name: asdict(status) for name, status in sorted(groups.items())},
        }


def _partition(copy: PartitionCopy) -> Mapping[str, Any]:
    return {
        "topic": copy.partition.topic,
        "partition": copy.partition.partition,
        "state": copy.state.name.lower(),
        "problem": copy.problem,
        "source_start": copy.source_start,
        "source_end": copy.source_end,
        "copied_to": copy.copied_to,
        "lag": copy.lag,
        "target_end": copy.target_end,
        "records": copy.tally.records,
        "bytes": copy.bytes,
        "runs": None if copy.map is None else len(copy.map),
    }
