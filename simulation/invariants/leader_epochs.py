"""The leader epoch cache of a log is what its batches say (I5)."""

from __future__ import annotations

from simulation.invariants.batches import batches
from txbroker.log.log import Log


def problem(log: Log, *, cleaned: bool) -> str | None:
    """What is wrong with the cache; None if all is well. `cleaned`: batches may be missing."""
    cached = list(log.leader_epochs)
    found: dict[int, int] = {}
    for header in batches(log):
        found.setdefault(header.leader_epoch, header.base_offset)
        if log.leader_epochs.epoch_of(header.base_offset) > header.leader_epoch:
            return f"the batch at {header.base_offset} has epoch {header.leader_epoch}, and the cache has {cached}"
    if cached != sorted(cached) or any(start > log.log_end_offset for _, start in cached):
        return f"the leader epochs {cached} do not ascend, or go beyond the end {log.log_end_offset}"
    starts = dict(cached)
    for epoch, first in found.items():
        start = starts.get(epoch)
        differs = start is not None and (start > first if cleaned else start != first)
        if start is None or (differs and first > log.log_start_offset):
            return f"epoch {epoch} begins at {first}, and the cache has {cached}"
    return None
