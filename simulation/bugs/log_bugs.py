"""Mistakes in the log and in the state that it keeps: producers, leader epochs, what is synced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulation.bugs.patching import Patch
from txbroker.cluster.partition import Partition
from txbroker.cluster.replica_fetcher import ReplicaFetcher
from txbroker.log import appending, leader_epochs, producer_recovery, producers
from txbroker.log.checkpoints import parse_lines
from txbroker.log.leader_epochs import LeaderEpochs
from txbroker.log.local_log import LocalLog
from txbroker.log.log import Log
from txbroker.log.producers import ProducerStates
from txbroker.log.truncation import TruncatableLog


def duplicate_accepted() -> list[Patch]:
    """A batch that was appended before is appended again: a client's retry after a lost answer is doubled."""
    return [Patch(ProducerStates, "check", lambda self, header, origin: None)]


def sequence_not_checked() -> list[Patch]:
    """A batch is accepted although the one before it is missing: batches of one producer change their order."""
    return [Patch(ProducerStates, "_check_sequence", lambda self, state, header: None)]


def follower_forgets_producers() -> list[Patch]:
    """Followers do not track producers: after a failover the new leader knows no duplicates."""

    def replay_batch(*_: Any) -> None: ...

    return [Patch(appending, "replay_batch", replay_batch)]


def five_batches_known() -> list[Patch]:
    """A log knows the last five batches of a producer: those that waited at the previous leader are refused when they are sent again."""
    return [
        Patch(producers, "BATCHES_REMEMBERED", 5),
        Patch(producer_recovery, "BATCHES_REMEMBERED", 5),
        Patch(producers, "_find_earlier", lambda state, header: None),
    ]


def any_first_sequence() -> list[Patch]:
    """A new leader accepts any first sequence of a producer: earlier batches waited at the previous leader, and are refused for ever."""
    return [Patch(Partition, "_check_first_batch", lambda self, records, successor_since_s: None)]


def producers_cleared_by_truncation() -> list[Patch]:
    """A truncation removes all producer state instead of what came after the truncation point."""
    truncate_towards = TruncatableLog.truncate_towards

    def broken(self: TruncatableLog, offset: int) -> bool:
        truncated = truncate_towards(self, offset)
        if truncated:
            self.producers.clear()
        return truncated

    return [Patch(TruncatableLog, "truncate_towards", broken)]


def producers_kept_by_truncation() -> list[Patch]:
    """A truncation keeps the producer state of the records that it removes: their repetition is taken for a duplicate."""
    truncate_towards = TruncatableLog.truncate_towards

    def broken(self: TruncatableLog, offset: int) -> bool:
        before = dict(self.producers.by_id)
        truncated = truncate_towards(self, offset)
        self.producers.by_id.update(before)
        return truncated

    return [Patch(TruncatableLog, "truncate_towards", broken)]


def epochs_kept_by_truncation() -> list[Patch]:
    """A truncation does not remove the leader epochs of what it removes."""
    return [Patch(LeaderEpochs, "truncate_from_end", lambda self, offset: None)]


def epochs_not_written_by_followers() -> list[Patch]:
    """A follower does not note the leader epochs of the records that it copies."""
    append_replicated = Log.append_replicated

    def broken(self: Log, records: memoryview, *, now_ms: int) -> Any:
        assign = LeaderEpochs.assign
        LeaderEpochs.assign = lambda self, epoch, start: None  # type: ignore[method-assign]
        try:
            return append_replicated(self, records, now_ms=now_ms)
        finally:
            LeaderEpochs.assign = assign  # type: ignore[method-assign]

    return [Patch(Log, "append_replicated", broken)]


def epoch_from_end_of_batch() -> list[Patch]:
    """A leader notes that its epoch begins one offset too late."""
    assign = LeaderEpochs.assign
    return [Patch(LeaderEpochs, "assign", lambda self, epoch, start: assign(self, epoch, start + 1))]


def leader_acknowledges_unsynced() -> list[Patch]:
    """With flush.messages=1 a leader does not wait for its own sync."""
    return [Patch(LocalLog, "settled_end", property(lambda self: self.log_end_offset))]


def follower_acknowledges_unsynced() -> list[Patch]:
    """With flush.messages=1 a follower fetches on before its log is synced."""

    def broken(self: ReplicaFetcher, one: Any, now_s: float, *, exceeded: bool) -> bool:
        return bool(one.resume_s > now_s or (exceeded and not one.in_sync and self._quota.covers(one.partition)))

    return [Patch(ReplicaFetcher, "_pauses", broken)]


def sync_is_not_done() -> list[Patch]:
    """A sync reports success without having synced."""
    from simulation.memory_disk import MemoryDisk, MemoryFile

    return [Patch(MemoryFile, "sync", lambda self: None), Patch(MemoryDisk, "sync", lambda self, path: None)]


def cut_off_checkpoint_accepted() -> list[Patch]:
    """A leader-epoch-checkpoint whose last number lost digits with the power is read as it is, and recovery does not correct it."""

    def broken(content: bytes, field_count: int) -> list[list[str]]:
        return parse_lines(content.rstrip(b"\n") + b"\n" if content else content, field_count)

    def believed(self: LeaderEpochs, epoch: int, offset: int) -> bool:
        return epoch > self.latest and self.note(epoch, offset)

    return [Patch(leader_epochs, "parse_lines", broken), Patch(LeaderEpochs, "correct", believed)]


def start_trusts_the_end() -> list[Patch]:
    """After a start everything in the log counts as committed."""
    init = Partition.__init__

    def broken(self: Partition, broker_id: int, log: Log, *arguments: Any, **named: Any) -> None:
        init(self, broker_id, log, *arguments, **named)
        self.high_watermark = log.log_end_offset

    return [Patch(Partition, "__init__", broken)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    bug.__name__: bug
    for bug in (
        duplicate_accepted,
        sequence_not_checked,
        follower_forgets_producers,
        five_batches_known,
        any_first_sequence,
        producers_cleared_by_truncation,
        producers_kept_by_truncation,
        epochs_kept_by_truncation,
        epochs_not_written_by_followers,
        epoch_from_end_of_batch,
        leader_acknowledges_unsynced,
        follower_acknowledges_unsynced,
        sync_is_not_done,
        cut_off_checkpoint_accepted,
        start_trusts_the_end,
    )
}
