"""What must be there when a partition has been read from its start to its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from simulation.histories.anomaly import Anomaly
from simulation.histories.index import History, Partition
from simulation.histories.operations import NO_OFFSET, Complete, Outcome, Send


class _Read:
    """The values and the highest offset that the readers of a Complete have."""

    def __init__(self, history: History, complete: Complete) -> None:
        self.values: set[str] = set()
        self.last = NO_OFFSET
        for poll in history.polls[complete.topic, complete.partition]:
            if poll.client in complete.readers:
                self.values.update(value for _, value in poll.records)
                self.last = max((self.last, *(offset for offset, _ in poll.records)))


def check(history: History) -> Iterator[Anomaly]:
    """lost-write, unseen, lost-latest, torn-transaction."""
    by_partition: dict[Partition, list[Send]] = defaultdict(list)
    for send in history.sends.values():
        by_partition[send.topic, send.partition].append(send)
    reads = [(complete, _Read(history, complete)) for complete in history.completes]
    for complete, read in reads:
        of = (complete.topic, complete.partition)
        if complete.topic in history.compacted:
            yield from _latest(history, complete, read, by_partition[of])
        else:
            yield from _missing(history, complete, read, by_partition[of])
    yield from _torn(history, reads)


def _missing(history: History, complete: Complete, read: _Read, sends: list[Send]) -> Iterator[Anomaly]:
    """Records that were confirmed, or that another consumer received, before the reading began."""
    of = (complete.topic, complete.partition)
    log = history.logs[of]
    received: dict[str, str] = {}
    for poll in history.polls[of]:
        if poll.ended < complete.began and (poll.read_committed or not complete.read_committed):
            received.update((value, poll.client) for _, value in poll.records if value not in read.values)
    for send in sends:
        if send.value in read.values or not _must_be_there(history, send, complete, received):
            continue
        offset = log.offsets.get(send.value, NO_OFFSET)
        if offset < log.deleted_before and log.deleted_before:
            continue  # without an offset it may be one of those that were deleted
        known = f"{send.value} was received by {received[send.value]}" if send.value in received else f"{send.value} was confirmed"
        place = f" at offset {offset}" if offset != NO_OFFSET else ""
        where = f"{' and '.join(complete.readers)}, which read up to offset {read.last}, received no such record"
        kind = "lost-write" if offset < read.last else "unseen"
        yield Anomaly(kind, f"{of[0]}-{of[1]}", f"{known}{place}; {where}")


def _must_be_there(history: History, send: Send, complete: Complete, received: dict[str, str]) -> bool:
    if complete.read_committed or send.transaction is None:
        outcome = history.outcome(send)
        end = None if send.transaction is None else history.ends[send.transaction] if outcome is Outcome.OK else None
        ended = send.ended if end is None else end.ended
    else:
        outcome, ended = send.outcome, send.ended
    return (outcome is Outcome.OK and ended < complete.began) or (outcome is not Outcome.FAILED and send.value in received)


def _latest(history: History, complete: Complete, read: _Read, sends: list[Send]) -> Iterator[Anomaly]:
    of = (complete.topic, complete.partition)
    log = history.logs[of]
    latest: dict[str, Send] = {}
    for send in sends:
        offset = log.offsets.get(send.value, NO_OFFSET)
        confirmed = history.outcome(send) is Outcome.OK and send.ended < complete.began
        if send.key is not None and confirmed and offset >= max(log.deleted_before, 0):
            known = latest.get(send.key)
            if known is None or offset > log.offsets[known.value]:
                latest[send.key] = send
    found: dict[str, int] = {}
    for value in read.values:
        key = history.sends[value].key if value in history.sends else None
        if key is not None:
            found[key] = max(found.get(key, NO_OFFSET), log.offsets[value], *log.repeats.get(value, ()))
    for key, send in latest.items():
        if found.get(key, NO_OFFSET) < log.offsets[send.value]:
            seen = f"offset {found[key]}" if key in found else "no record of it"
            yield Anomaly("lost-latest", f"{of[0]}-{of[1]}", f"the latest record of key {key} is {send.value} at offset "
                                                             f"{log.offsets[send.value]}; {' and '.join(complete.readers)} received {seen}")


def _torn(history: History, reads: list[tuple[Complete, _Read]]) -> Iterator[Anomaly]:
    """Transactions of which some confirmed records were received and others were not, whatever their outcome."""
    last: dict[Partition, tuple[Complete, _Read]] = {}
    for complete, read in sorted(reads, key=lambda each: each[0].began):
        if complete.read_committed and complete.topic not in history.compacted:
            last[complete.topic, complete.partition] = (complete, read)
    there: dict[str, list[str]] = defaultdict(list)
    missing: dict[str, list[str]] = defaultdict(list)
    for send in history.sends.values():
        of = (send.topic, send.partition)
        if send.transaction is None or send.outcome is not Outcome.OK or of not in last:
            continue
        complete, read = last[of]
        end = history.ends.get(send.transaction)
        deleted = history.logs[of].offsets.get(send.value, NO_OFFSET) < history.logs[of].deleted_before
        if end is not None and end.ended < complete.began and not deleted:
            (there if send.value in read.values else missing)[send.transaction].append(f"{send.value} in {of[0]}-{of[1]}")
    for transaction in sorted(there.keys() & missing.keys()):
        yield Anomaly("torn-transaction", transaction, f"{there[transaction][0]} was received, {missing[transaction][0]} was not")
